"""Why a file cannot be read, and what every reader does about it."""

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from kept.settings import install_command


class Unreadable(ValueError):
    """A file that cannot be made text or pictures of; says which, and why."""


def library(name: str) -> Any:  # noqa: ANN401 # a module that may not be there
    """A library of the extra `office`, imported when a file first needs it."""
    try:
        return import_module(name)
    except ImportError as error:
        package = {"docx": "python-docx", "pptx": "python-pptx"}.get(name, name)
        raise Unreadable(f"that takes {package}: {install_command('office')}") from error


def chosen(pages: Sequence[int] | None, there: int, one: str) -> Sequence[int]:
    """The numbers of the pages that are wanted, from 1; all that are there when nobody says."""
    for number in pages or ():
        if not 1 <= number <= there:
            raise Unreadable(f"there is no {one} {number}: it has {there}")
    return pages or range(1, there + 1)


class Lines:
    """Text that grows line by line, and not for ever."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lines: list[str] = []
        self._size = 0

    def add(self, line: str) -> None:
        """One more; raises `Unreadable` where it is one too many."""
        self._size += len(line) + 1
        if self._size > self._most:
            raise Unreadable(f"it says more than {self._most:,} characters")
        self._lines.append(line)

    def text(self) -> str:
        """All of them, with no more than one empty line in a row."""
        lines = [line.rstrip() for line in self._lines]
        kept = [line for n, line in enumerate(lines) if line or (n and lines[n - 1])]
        return "\n".join(kept).strip("\n")
