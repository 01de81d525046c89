"""Which files the command lines of a task name.

A word is looked up in the task's folder and where the command runs. It may be a command line in
itself, as in `sh -c "python score.py"`, and a file may stand behind `=`: `--rubric=rubric.md`.
"""

import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import cast


def named(bases: Iterable[Path], lines: Iterable[str]) -> set[Path]:
    """The files and folders that are words of command lines, links followed."""
    return looked_up(bases, (word for line in lines for word in words(line)))


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
    """The file that a word of a command is, or the module that `package.module:name` is in."""
    if not word:
        return  # it would be the folder itself
    module = word.partition(":")[0].replace(".", "/")
    for path in (base / name for base in bases for name in (word, f"{module}.py")):
        try:
            if path.exists():
                yield path.resolve()
        except (OSError, ValueError):
            # a whole script may stand where a file name could
            continue
