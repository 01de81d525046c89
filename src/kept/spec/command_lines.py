"""Files named in command lines of a task, and programs or scripts that are missing.

A word is looked up in the task's folder and in the working directory. It may itself be a command
line, as in `sh -c "python score.py"`. A file may stand behind `=`, as in `--rubric=rubric.md`, or
before `::`, as in pytest. A module stands behind `-m` or before `:function`.

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
    """The files and folders that are words of command lines, and modules; links followed."""
    folders, given = tuple(bases), tuple(lines)
    paths = [word for line in given for word in words(line)]
    for name in (name for line in given for name in modules(line)):
        path = name.replace(".", "/")
        paths += (f"{path}.py", f"{path}/__init__.py", f"{path}/__main__.py")
    return looked_up(folders, paths)


def looked_up(bases: Iterable[Path], given: Iterable[str]) -> set[Path]:
    """The files and folders that words are, links followed."""
    folders = tuple(bases)
    return {path for word in given for path in _meant(folders, word)}


def words(line: str) -> Iterator[str]:
    """The words of a command line, and the words inside those."""
    for word in _split(line):
        yield word
        if any(c.isspace() for c in word):
            yield from words(word)
        elif "=" in word:
            yield word.rpartition("=")[2]
        elif "::" in word:
            yield word.partition("::")[0]


def modules(line: str) -> Iterator[str]:
    """The Python modules that a command line names."""
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
    """As a shell would, with `;`, `|`, `<` and the like apart; by spaces where a quote is open."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        found = list(lexer)
    except ValueError:
        return line.split()
    # a word that is all of the line would be split for ever
    return found if found != [line] else line.split()


def _meant(bases: Iterable[Path], word: str) -> Iterator[Path]:
    """The file or folder that a word is."""
    if not word:
        return  # it would be the folder itself
    for path in (base / word for base in bases):
        try:
            if path.exists():
                yield path.resolve()
        except (OSError, ValueError):
            # a whole script may stand where a file name could
            continue


_ENDS = re.compile(r"[();<>|&]+")
_GIVEN = re.compile(r"[A-Za-z_]\w*=")
_MAGIC = re.compile(r"[$`*?\[\]{}~!#]")
"""What a shell makes something else of."""

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
"""Words that a shell needs no program for."""


def check_script(source: Source, loc: Loc) -> None:
    """Report a script that the command of a runner, a scorer or a proposer starts and has not got.

    `loc` is the place of the mapping that holds `command` and `cwd`.
    """
    line, cwd = said(source, (*loc, "command")), said(source, (*loc, "cwd"), ".")
    if not isinstance(line, str) or not isinstance(cwd, str) or "\0" in line + cwd:
        return
    folder = source.folder / cwd
    if not folder.is_dir():
        return  # told already
    _check_program(source, loc, line)
    for name in started_by(line):
        if not _is_there(folder / name):
            place = "the task's folder" if cwd == "." else f"`{cwd}`"
            hint = near_file(folder / name) or f"the command runs in {place}"
            source.report((*loc, "command"), f"there is no file `{name}`", hint)


def _check_program(source: Source, loc: Loc, line: str) -> None:
    """Report a program that is to be found along the PATH, and is not."""
    program = program_of(line)
    given = said(source, (*loc, "env", "PATH"), "")
    along = given if isinstance(given, str) and given else child_environment({})["PATH"]
    if program is None or "$" in along or shutil.which(program, path=along):
        return
    hint = "install it, or write the path to it"
    source.report((*loc, "command"), f"there is no program `{program}` on the PATH", hint)


def program_of(line: str) -> str | None:
    """The name by which a command line starts a program along the PATH; None if it does not."""
    first = line.strip().replace("\\\n", " ").partition("\n")[0]
    words = _first_command(line)
    if not words or "/" in words[0] or not _plain(words[0]) or words[0] in _SHELLS_OWN:
        return None
    # a path of its own, or a function that the line defines itself
    if "PATH=" in first or re.search(rf"{re.escape(words[0])}\s*\(\s*\)", line):
        return None
    return words[0]


def started_by(line: str) -> Iterator[str]:
    """The relative paths of the program and the script that a command line starts first."""
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
    """The words of the first simple command, without the variables set for it."""
    first = line.strip().replace("\\\n", " ").partition("\n")[0]
    lexer = shlex.shlex(first, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.commenters = ""
    words: list[str] = []
    try:
        for word in lexer:
            if _ENDS.fullmatch(word):
                break
            if words or not _GIVEN.match(word):
                words.append(word)
    except ValueError:
        return []  # a quote that is never closed
    return words


def _script(program: str, rest: Sequence[str]) -> str | None:
    """The script that an interpreter is given; None where that is not plain."""
    python, shell = _PYTHON.fullmatch(program), _SHELL.fullmatch(program)
    if not (python or shell or _OTHER.fullmatch(program)):
        return None
    words = iter(rest)
    for word in words:
        if not word.startswith("-"):
            # a shell looks for a bare name along the path as well
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
