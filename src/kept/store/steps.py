"""The index of closed steps: one short row each, and where in the spine the whole record stands.

It lets a reader list a very long run, and open any step of it, without reading the spine. The spine
is the truth: rows that do not fit it are dropped, and rows that are missing are made from it.
"""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from kept.core.event import StepClosed
from kept.errors import JournalError
from kept.store import wire

NAME = "steps.idx"

_MARK = b'"kind":"step_closed"'


class StepRow(msgspec.Struct, array_like=True, frozen=True):
    """One closed step, in short."""

    step: int
    at: int
    """Where its record starts in the spine."""
    size: int
    """Bytes of the record, newline included."""
    outcome: str
    candidate: str | None
    loss: float | None
    rollouts: int
    reason: str


_rows = msgspec.json.Decoder(StepRow)


def row_of(event: StepClosed, at: int, size: int) -> StepRow:
    """The row of a record that stands there."""
    own = (e for e in event.evaluations if e.candidate == event.candidate)
    return StepRow(
        event.step,
        at,
        size,
        event.verdict.outcome,
        event.candidate,
        next((e.loss for e in own if e.purpose == "decide"), None),
        event.spend.rollouts,
        event.verdict.words,
    )


def read_steps(folder: Path) -> list[StepRow]:
    """The rows of a run, whatever state its index is in."""
    spine = folder / "journal.jsonl"
    rows = _trusted(folder / NAME, spine)
    start = rows[-1].at + rows[-1].size if rows else 0
    rows.extend(_made_from(spine, start))
    return rows


def mend_steps(folder: Path) -> None:
    """Have the index file hold what the spine says; for the writer, before it adds to it."""
    path = folder / NAME
    rows = b"".join(wire.encode(row) + b"\n" for row in read_steps(folder))
    if not path.exists() or path.read_bytes() != rows:
        fresh = path.with_suffix(".new")
        fresh.write_bytes(rows)
        fresh.replace(path)


def closed_step(folder: Path, row: StepRow) -> StepClosed:
    """The whole record of a row."""
    with (folder / "journal.jsonl").open("rb") as file:
        file.seek(row.at)
        event = wire.decode_event(file.read(row.size))
    if not isinstance(event, StepClosed) or event.step != row.step:
        raise JournalError(
            f"the index of {folder} does not fit its journal", hint="delete steps.idx"
        )
    return event


def _trusted(index: Path, spine: Path) -> list[StepRow]:
    """The rows of the index file up to the first that cannot be true."""
    if not index.exists() or not spine.exists():
        return []
    end = spine.stat().st_size
    rows: list[StepRow] = []
    for line in index.read_bytes().split(b"\n")[:-1]:
        try:
            row = _rows.decode(line)
        except ValueError:
            break
        if row.step != len(rows) or row.at + row.size > end:
            break
        rows.append(row)
    if rows:
        # one look at the last of them tells an index of some other journal
        with spine.open("rb") as file:
            file.seek(rows[-1].at)
            if _MARK not in file.read(rows[-1].size):
                return []
    return rows


def _made_from(spine: Path, start: int) -> Iterator[StepRow]:
    if not spine.exists():
        return
    with spine.open("rb") as file:
        file.seek(start)
        at = start
        for line in file:
            if _MARK in line and line.endswith(b"\n"):
                try:
                    event = wire.decode_event(line)
                except ValueError:
                    return  # a damaged record is told of by whoever reads the spine itself
                if isinstance(event, StepClosed):
                    yield row_of(event, at, len(line))
            at += len(line)
