"""Files named in command lines of a task, and programs or scripts that are missing.

Each word is looked up in the task's folder and in the working directory. A word may itself be a
command line, as in `sh -c "python score.py"`. A file may follow `=`, as in `--rubric=rubric.md`,
or precede `::`, as in pytest. A module follows `-m` or precedes `:function`.

The missing-program check covers only the program that the shell starts first, and runs nothing.
Files made by the command, variables and patterns are ignored.
"""

import re
import shlex
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from kept.settings import child_environment
from kept.spec.paths import near_file
from kept.spec.source import Source
from kept.spec.validate import said
from kept.spec.yaml import Loc

_DOTTED = r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*"
_MODULE = re.compile(rf"(?:-m)?({_DOTTED})")
_FUNCTION = re.compile(rf"({_DOTTED}):[\w.]+")


def named(bases: Iterable[Path], lines: Iterable[str]) -> set[Path]:
    """Find files, folders and modules named in command lines; links are resolved."""
    folders, given = tuple(bases), tuple(lines)
    paths = [word for line in given for word in words(line)]
    for name in (name for line in given for name in modules(line)):
        path = name.replace(".", "/")
        paths += (f"{path}.py", f"{path}/__init__.py", f"{path}/__main__.py")
    return looked_up(folders, paths)


def looked_up(bases: Iterable[Path], given: Iterable[str]) -> set[Path]:
    """Find the files and folders that words name; links are resolved."""
    folders = tuple(bases)
    return {path for word in given for path in _meant(folders, word)}


def words(line: str) -> Iterator[str]:
    """Yield the words of a command line, and the words nested in those."""
    for word in _split(line):
        yield word
        if any(c.isspace() for c in word):
            yield from words(word)
        elif "=" in word:
            yield word.rpartition("=")[2]
        elif "::" in word:
            yield word.partition("::")[0]


def modules(line: str) -> Iterator[str]:
    """Yield the Python modules that a command line names."""
    before = ""
    for word in _split(line):
        if any(c.isspace() for c in word):
            yield from modules(word)
        elif before == "-m" or word.startswith("-m"):
            yield from (found[1] for found in (_MODULE.fullmatch(word),) if found)
        elif function := _FUNCTION.fullmatch(word):
            yield function[1]
        before = word


def _split(line: str) -> list[str]:
    """Split like a shell, operators such as `;` and `|` apart; at spaces if a quote is open."""
    try:
        found = list(_lexer(line))
    except ValueError:
        return line.split()
    # a single word equal to the line would make `words` recurse for ever
    return found if found != [line] else line.split()


def _lexer(line: str) -> shlex.shlex:
    """Lexer with a shell's rules; iterating raises `ValueError` if a quote is open."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.commenters = ""
    return lexer


def _meant(bases: Iterable[Path], word: str) -> Iterator[Path]:
    """Yield the existing files or folders that a word names."""
    if not word:
        return  # an empty word would name the folder itself
    for path in (base / word for base in bases):
        try:
            if path.exists():
                yield path.resolve()
        except (OSError, ValueError):
            # the word may be a whole script: too long, or with a NUL
            continue


_ENDS = re.compile(r"[();<>|&]+")
_GIVEN = re.compile(r"[A-Za-z_]\w*=")
_MAGIC = re.compile(r"[$`*?\[\]{}~!#]")
"""Characters that a shell expands or interprets."""

_PYTHON = re.compile(r"python[\d.]*|pypy[\d.]*")
_SHELL = re.compile(r"sh|bash|dash|zsh|ksh")
_OTHER = re.compile(r"node|ruby|perl|Rscript|php|lua")

_PYTHON_ALONE = re.compile(r"-[bBdEiIOPqsSuvx]+")
_PYTHON_WITH = ("-W", "-X")
_SHELL_ALONE = re.compile(r"-[efuvx]+")


_SHELLS_OWN = {
    *(".", ":", "[", "[[", "{", "}", "alias", "bg", "break", "case", "cd", "command"),
    *("continue", "do", "done", "echo", "elif", "else", "esac", "eval", "exec", "exit"),
    *("export", "false", "fg", "fi", "for", "function", "if", "in", "jobs", "kill", "let"),
    *("local", "printf", "pwd", "read", "return", "select", "set", "shift", "source", "test"),
    *("then", "time", "trap", "true", "type", "ulimit", "umask", "unset", "until", "wait"),
    "while",
}
"""Built-ins and keywords of shells, which need no program."""


def check_script(source: Source, loc: Loc) -> None:
    """Report a missing script or program that the command of a component starts.

    `loc` is the place of the mapping that holds `command` and `cwd`.
    """
    line, cwd = said(source, (*loc, "command")), said(source, (*loc, "cwd"), ".")
    if not isinstance(line, str) or not isinstance(cwd, str) or "\0" in line + cwd:
        return
    folder = source.folder / cwd
    if not folder.is_dir():
        return  # already reported
    _check_program(source, loc, line)
    for name in started_by(line):
        if not _is_there(folder / name):
            place = "the task's folder" if cwd == "." else f"`{cwd}`"
            hint = near_file(folder / name) or f"the command runs in {place}"
            source.report((*loc, "command"), f"there is no file `{name}`", hint)


def _check_program(source: Source, loc: Loc, line: str) -> None:
    """Report a program that is missing from the PATH."""
    program = program_of(line)
    given = said(source, (*loc, "env", "PATH"), "")
    along = given if isinstance(given, str) and given else child_environment({})["PATH"]
    if program is None or "$" in along or shutil.which(program, path=along):
        return
    hint = "install it, or write the path to it"
    source.report((*loc, "command"), f"there is no program `{program}` on the PATH", hint)


def program_of(line: str) -> str | None:
    """Name of the program that a command line starts from the PATH; None if it does not."""
    first = line.strip().replace("\\\n", " ").partition("\n")[0]
    words = _first_command(line)
    if not words or "/" in words[0] or not _plain(words[0]) or words[0] in _SHELLS_OWN:
        return None
    # the line sets its own PATH, or defines a function of that name
    if "PATH=" in first or re.search(rf"{re.escape(words[0])}\s*\(\s*\)", line):
        return None
    return words[0]


def started_by(line: str) -> Iterator[str]:
    """Yield the relative paths of the program and script that a command line starts first."""
    words = _first_command(line)
    if not words:
        return
    program, rest = words[0], words[1:]
    if "/" in program and _plain(program):
        yield program
    script = _script(program.rpartition("/")[2], rest)
    if script is not None and _plain(script):
        yield script


def _first_command(line: str) -> list[str]:
    """Words of the first simple command, without leading variable assignments."""
    first = line.strip().replace("\\\n", " ").partition("\n")[0]
    words: list[str] = []
    try:
        for word in _lexer(first):
            if _ENDS.fullmatch(word):
                break
            if words or not _GIVEN.match(word):
                words.append(word)
    except ValueError:
        return []  # a quote that is never closed
    return words


def _script(program: str, rest: Sequence[str]) -> str | None:
    """Script that an interpreter runs; None if that is unclear."""
    python, shell = _PYTHON.fullmatch(program), _SHELL.fullmatch(program)
    if not (python or shell or _OTHER.fullmatch(program)):
        return None
    words = iter(rest)
    for word in words:
        if not word.startswith("-"):
            # a shell looks for a bare name on the PATH too
            return None if shell and "/" not in word and shutil.which(word) else word
        if python and word in _PYTHON_WITH:
            next(words, None)
        elif not (python and _PYTHON_ALONE.fullmatch(word)) and not (
            shell and _SHELL_ALONE.fullmatch(word)
        ):
            return None
    return None


def _plain(name: str) -> bool:
    return not (_MAGIC.search(name) or Path(name).is_absolute())


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return True  # a name that no file can have is another problem
