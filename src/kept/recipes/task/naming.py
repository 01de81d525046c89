"""Which files the command lines of a task name.

A word is looked up in the task's folder and where the command runs. It may be a command line in
itself, as in `sh -c "python score.py"`. A file may stand behind `=`, as in `--rubric=rubric.md`, or
before `::`, as pytest has it; a module stands behind `-m` or before `:function`.
"""

import re
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import cast

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


def cwds(said: object) -> Iterator[str]:
    """The folders that commands are run in, wherever in a part of a spec they stand."""
    if isinstance(said, dict):
        for key, value in cast("dict[str, object]", said).items():
            yield from (str(value),) if key == "cwd" else cwds(value)
    elif isinstance(said, list | tuple):
        for value in cast("Iterable[object]", said):
            yield from cwds(value)


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
