"""How a record that cannot be read is told: by its file and its line. Changes nothing."""

import logging
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from kept.errors import JournalError

log = logging.getLogger("kept")

LARGEST = 64 << 20
"""Bytes of a rollout file that is searched for the number of a line."""


_HINT = (
    "the file was changed by something else; mend or restore that line, the rest of the run "
    "is intact"
)


def damaged(path: Path | str, number: int, why: object) -> JournalError:
    """That a line of a spine is none of its records."""
    return JournalError(f"{path}:{number}: not a record of this journal ({why})", hint=_HINT)


def misplaced(path: Path | str, number: int, why: object) -> JournalError:
    """That a record of a spine cannot follow those before it."""
    hint = "the file was changed by something else: a line before this one may be missing or moved"
    return JournalError(f"{path}:{number}: {why}", hint=f"{hint}; restore it from a copy")


def never_began(spine: Path) -> JournalError:
    """That a spine is empty: of a run that ended at once, or one whose spine was emptied."""
    rollouts = spine.with_name("rollouts.jsonl")
    if rollouts.exists() and rollouts.stat().st_size:
        hint = f"{rollouts.name} beside it is not: restore the file from a copy"
        return JournalError(f"{spine} is empty: something else emptied it", hint=hint)
    hint = "start it again; nothing was spent"
    return JournalError(f"{spine} is empty: the run ended before it began", hint=hint)


def damaged_at(path: Path, at: int, why: object) -> JournalError:
    """The same of the line that begins at an offset."""
    return damaged(path, _number_at(path, at), why)


@contextmanager
def naming(path: Path, at: int) -> Generator[None]:
    """Have what cannot be read told by the line that begins at an offset."""
    try:
        yield
    except ValueError as error:
        raise damaged_at(path, at, error) from error


def left_out(path: Path, line: bytes, why: object) -> None:
    """Tell that a line of the rollout file is passed over: what it held is asked for again."""
    # in a larger file its number is not worth the time: there may be many such lines
    looked_for = line.strip() if path.stat().st_size <= LARGEST else b""
    at = path.read_bytes().find(looked_for) if looked_for else -1
    place = f"{path.name}:{_number_at(path, at)}" if at >= 0 else path.name
    log.warning("%s: a damaged line is left out (%s): %.80r", place, why, line)


def _number_at(path: Path, at: int) -> int:
    with path.open("rb") as file:
        return file.read(at).count(b"\n") + 1
