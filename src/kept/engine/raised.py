"""Words and place of an exception of a user's code; the first exception of a task group."""

import os
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

LONGEST = 1000
"""Characters of an exception that are written down."""

_NOT_THEIRS = (Path(__file__).parents[1], Path(os.__file__).parent)
"""The folders of Kept and of the standard library."""

_INSTALLED = {"site-packages", "dist-packages"}


class Tamed(RuntimeError):
    """An exception in the place of one that a task must not let through."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.stands_for = self.__cause__ = error


def said_by(error: BaseException) -> str:
    """What an exception says, in a line or more; one that stands for another says what that was."""
    told = error.stands_for if isinstance(error, Tamed) else error
    try:
        words = str(told)
    except Exception:  # noqa: BLE001 # the port wrapper: an exception may fail to tell of itself
        words = "it cannot say what"
    return f"{type(told).__name__}: {words}"[:LONGEST]


def place_of(error: BaseException) -> str:
    """`file.py:12`, the last line of the user's own code that an exception came through."""
    frames = traceback.extract_tb(error.__traceback__)
    mine = [(path, f.lineno) for f in frames if _is_theirs(path := Path(f.filename))]
    if not mine:
        return place_of(error.__cause__) if error.__cause__ is not None else ""
    path, line = mine[-1]
    here = Path.cwd()
    return f"{path.relative_to(here) if path.is_relative_to(here) else path}:{line}"


def _is_theirs(path: Path) -> bool:
    installed = _INSTALLED.intersection(path.parts) or path.name.startswith("<")
    return not installed and not any(path.is_relative_to(folder) for folder in _NOT_THEIRS)


def first_of(error: BaseException) -> BaseException:
    """The first exception that task groups have bundled up."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error


@contextmanager
def ungrouped() -> Generator[None]:
    """Raise the first exception of a task group by itself, so that its type is still seen."""
    try:
        yield
    except BaseExceptionGroup as group:
        first = first_of(group)
        raise first from first.__cause__
