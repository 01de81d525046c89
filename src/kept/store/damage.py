"""How a record that cannot be read is told: by its file and its line. Changes nothing."""

import logging
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from kept.errors import JournalError

log = logging.getLogger("kept")

LARGEST = 64 << 20
"""Bytes of a rollout file that is searched for the number of a line."""


_HINT = (
    "the file was changed by something else: restore it from a copy; "
    "`kept doctor RUN` says what is damaged and what can be recovered"
)


def damaged(path: Path | str, number: int, why: object) -> JournalError:
    """That a line is not as it was written."""
    return JournalError(f"{path}:{number}: not a record of this journal ({why})", hint=_HINT)


def cut_off(path: Path, end: int, missing: int) -> JournalError:
    """That a file ends before its end."""
    why = f"the file ends here, and {missing} bytes that were written are missing"
    return JournalError(f"{path}:{line_number(path, end)}: {why}", hint=_HINT)


@cache
def end_missing(spine: Path, later: int) -> None:
    """Warn once that the records of a step are missing from the end of a spine."""
    text = "%s: the end is missing: rollouts.jsonl has rollouts of step %d; what is told is earlier"
    log.warning(f"{text}, and `kept resume` does those steps again", spine, later)


def misplaced(path: Path | str, number: int, why: object) -> JournalError:
    """That a record of a spine cannot follow those before it."""
    hint = "the file was changed by something else: a line before this one may be missing or moved"
    return JournalError(f"{path}:{number}: {why}", hint=f"{hint}; restore it from a copy")


def never_began(spine: Path) -> JournalError:
    """That a spine is empty: of a run that ended at once, or one whose spine was emptied."""
    rollouts = spine.with_name("rollouts.jsonl")
    if rollouts.exists() and rollouts.read_bytes().count(b"\n") > 1:  # more than its header
        hint = f"{rollouts.name} beside it is not: restore the file from a copy"
        return JournalError(f"{spine} is empty: something else emptied it", hint=hint)
    hint = "start it again; nothing was spent"
    return JournalError(f"{spine} is empty: the run ended before it began", hint=hint)


def damaged_at(path: Path, at: int, why: object) -> JournalError:
    """The same of the line that begins at an offset."""
    return damaged(path, line_number(path, at), why)


@contextmanager
def naming(path: Path, at: int) -> Generator[None]:
    """Have what cannot be read told by the line that begins at an offset."""
    try:
        yield
    except ValueError as error:
        raise damaged_at(path, at, error) from error


def left_out(path: Path, line: bytes, why: object, at: int = -1) -> None:
    """Tell that a line of the rollout file is passed over: what it held is asked for again.

    A line whose offset is not given is searched for.
    """
    # in a larger file its number is not worth the time: there may be many such lines
    if at < 0 and path.stat().st_size <= LARGEST and line.strip():
        at = path.read_bytes().find(line.strip())
    place = f"{path.name}:{line_number(path, at)}" if at >= 0 else path.name
    log.warning("%s: a damaged line is left out (%s): %.80r", place, why, line)


def line_number(path: Path, at: int) -> int:
    """The number of the line that begins at an offset."""
    if not path.exists():
        return 1
    with path.open("rb") as file:
        return file.read(at).count(b"\n") + 1
