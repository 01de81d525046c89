"""Index of closed steps: one short row each, with the offsets of the full records in the spine.

It lets a reader list a very long run, and open any step of it, without reading the spine. The spine
takes precedence: rows that do not fit it are dropped, and missing rows are rebuilt from it.
"""

from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import fields
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec

from kept.core.budget import Spend
from kept.core.event import SCHEMA, Event, Proposed, RunStarted, StepClosed, StepOpened
from kept.core.proposal import Note, Proposal, ProposerFailed, Reply, Skip
from kept.core.text import one_line
from kept.core.verdict import IDLE
from kept.errors import JournalError
from kept.store import codec
from kept.store.candidate_files import SPACE, write_private
from kept.store.jsonl import INDEX, Closed, damaged_at, event_of, naming
from kept.store.schema import check_told

HEADER = b'{"kind":"steps","version":%d}\n' % SCHEMA
"""First record of the index: the version of its format."""
WHY = 160
"""Maximum characters of a proposer's reason in a row."""

ENDS = tuple(f'"kind":"{kind}"}}\n'.encode() for kind in ("step_closed", "step_opened", "proposed"))
"""Line ends of step records; Kept writes `kind` last."""


_SAYS = {"decide": 0, "measure": 1, "promote": 2}
"""Rank of purposes by how informative their rollouts are, the most informative first."""


class Told(NamedTuple):
    """Short form of a step's evaluation of one candidate for one purpose."""

    purpose: str
    candidate: str
    loss: float | None
    asked: int
    failed: int


class StepRow(msgspec.Struct, array_like=True, frozen=True):
    """Short row of a closed step."""

    step: int
    at: int
    """Offset of its record in the spine."""
    size: int
    """Size of the record in bytes, newline included."""
    outcome: str
    candidate: str | None
    loss: float | None
    """Loss of its candidate on the deciding cases."""
    rollouts: int
    reason: str
    code: str
    best: bool
    incumbent: str
    """Id of the candidate that it was judged against."""
    proposer: str
    phase: str
    why: str
    """The proposer's reason, cut to `WHY` characters."""
    numbers: dict[str, float]
    """Numbers of the verdict."""
    told: tuple[Told, ...]
    spent: tuple[int | float, ...]
    """Its spend, in the order of the fields of `Spend`."""
    opened_at: int
    """Offset of the record that opened it; -1 without one."""
    proposed: tuple[int, int]
    """Offset and size of the proposer's answer; size 0 without one."""
    opened: float
    closed: float
    """Times at which it was opened and closed."""
    range: tuple[int, int]
    """Range of bytes in the rollout file that contains its rollouts, among others."""

    @property
    def kept(self) -> bool:
        """True if its candidate became the incumbent."""
        return self.outcome == "keep"

    @property
    def judged(self) -> bool:
        """True if there was a proposal to judge."""
        return self.code not in IDLE

    @property
    def spend(self) -> Spend:
        """Its spend."""
        return spend_of(self.spent)

    @property
    def measured(self) -> float | None:
        """Loss of its candidate in its most informative rollouts; None without any."""
        found, rank = None, len(_SAYS)
        for purpose, candidate, loss, _, _ in self.told:
            place = _SAYS.get(purpose, len(_SAYS))
            if candidate == self.candidate and place < rank:
                found, rank = loss, place
        return found


class _IndexLine(msgspec.Struct):
    """A line of the step index."""

    row: StepRow


_rows = msgspec.json.Decoder(_IndexLine)
SPENT = tuple(field.name for field in fields(Spend))
"""Field names of `Spend`, in the order of `StepRow.spent`."""
_spent = attrgetter(*SPENT)


def spend_of(spent: Sequence[int | float]) -> Spend:
    """Build a `Spend` from its figures in order."""
    return Spend(*cast("tuple[Any, ...]", tuple(spent)))


class Opened(NamedTuple):
    """Record that opened a step, with its offset."""

    event: StepOpened
    at: int


class Answered(NamedTuple):
    """Record of a proposer's answer, with its offset and size."""

    event: Proposed
    at: int
    size: int


class RowMaker:
    """Builds rows from the events of a spine, in order."""

    def __init__(self) -> None:
        self.opened: dict[int, Opened] = {}
        """Steps without a verdict."""
        self.answered: dict[int, Answered] = {}
        """Those of them with an answer of the proposer."""

    def still(self) -> "RowMaker":
        """Return an independent copy, which later events do not change."""
        other = RowMaker()
        other.opened, other.answered = dict(self.opened), dict(self.answered)
        return other

    def hear(self, event: Event, at: int, size: int) -> StepRow | None:
        """Take an event; return the row of the step if the event closes it."""
        match event:
            case StepOpened():
                self.opened[event.step] = Opened(event, at)
            case Proposed():
                self.answered[event.step] = Answered(event, at, size)
            case StepClosed():
                opened = self.opened.pop(event.step, None)
                return _row(event, (at, size), opened, self.answered.pop(event.step, None))
            case _:
                pass
        return None


def _row(
    event: StepClosed, place: tuple[int, int], opened: Opened | None, answered: Answered | None
) -> StepRow:
    mine = (e for e in event.evaluations if e.candidate == event.candidate)
    turn = opened.event.turn if opened else None
    return StepRow(
        event.step,
        *place,
        event.verdict.outcome,
        event.candidate,
        next((e.loss for e in mine if e.purpose == "decide"), None),
        event.spend.rollouts,
        event.verdict.words,
        event.verdict.code,
        event.verdict.best,
        event.incumbent,
        turn.proposer if turn else "",
        turn.phase if turn else "",
        one_line(_why(answered.event.reply), WHY) if answered else "",
        dict(event.verdict.numbers),
        tuple(Told(e.purpose, e.candidate, e.loss, e.asked, e.failed) for e in event.evaluations),
        _spent(event.spend),
        opened.at if opened else -1,
        (answered.at, answered.size) if answered else (0, 0),
        opened.event.t if opened else event.t,
        event.t,
        event.rollouts,
    )


def _why(reply: Reply) -> str:
    match reply:
        case Proposal() | Skip():
            return reply.why
        case Note():
            return reply.text
        case ProposerFailed():
            return reply.failure.message
        case _:
            return ""


class StepLog:
    """Rows of a run that may still grow; each `refresh` reads only new data."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._spine = folder / "journal.jsonl"
        self.rows: list[StepRow] = []
        self.maker = RowMaker()
        self._end = 0
        """Offset in the spine up to which it was read."""

    @property
    def end(self) -> int:
        """End offset in the spine of the last record that was read."""
        return self._end

    def refresh(self) -> None:
        """Read what was written since the last refresh."""
        if self._spine.exists() and self._spine.stat().st_size < self._end:
            self.rows, self.maker, self._end = [], RowMaker(), 0  # another file is there now
        if not self.rows:
            self.rows = _trusted(self._folder / INDEX, self._spine)
            # steps open in order, so those open now were opened behind the last row's opening
            self._end = max(0, self.rows[-1].opened_at) if self.rows else 0
        for event, at, size in _events_from(self._spine, self._end):
            row = self.maker.hear(event, at, size)
            if row is not None and row.step > len(self.rows):
                why = f"step {row.step} closed, {len(self.rows)} expected"
                raise damaged_at(self._spine, at, why)
            if row is not None and row.step == len(self.rows):
                self.rows.append(row)
            self._end = at + size

    def still(self) -> "StepLog":
        """Return an independent copy, which no refresh changes."""
        other = copy(self)
        other.rows, other.maker = list(self.rows), self.maker.still()
        return other


def index_record(row: StepRow) -> bytes:
    """Encode a row as a record of the index file."""
    return b'{"row":%b}' % codec.encode(row)


class Mended(NamedTuple):
    """State that the writer takes over from the recorded steps."""

    maker: RowMaker
    rollouts_end: int
    """Highest offset in the rollout file that any of them refers to."""


def mend_steps(folder: Path) -> Mended:
    """Rebuild the index file if it differs from the spine; the writer calls this first."""
    path = folder / INDEX
    log = StepLog(folder)
    log.refresh()
    data = _index_lines(log.rows)
    try:
        if not path.exists() or path.read_bytes() != data:
            write_private(path, data)
    except OSError as error:
        raise JournalError(f"cannot write {path}: {error.strerror}", hint=SPACE) from error
    ends = [row.range[1] for row in log.rows]
    ends += [opened.event.rollouts_at for opened in log.maker.opened.values()]
    return Mended(log.maker, max(ends, default=0))


def is_index_of(index: Path, spine: Path) -> bool:
    """True if every line of an index file matches the spine; its last lines may be missing."""
    maker = RowMaker()
    heard = (maker.hear(event, at, size) for event, at, size in _events_from(spine, 0))
    right = (row for row in heard if row is not None)
    lines = index.read_bytes().splitlines(keepends=True)
    at = 0
    try:
        for number, line in enumerate(lines):
            if codec.unseal(line) != at or not line.endswith(b"\n"):
                return False
            at += len(line)
            if number == 0:
                if not line.endswith(HEADER[1:]):
                    return False
            elif number == len(lines) - 1 and b'"kind":"closed"' in line:
                codec.decode(line, Closed)
            elif _rows.decode(line).row != next(right, None):
                return False
    except ValueError:
        return False
    return bool(lines)


def _index_lines(rows: Iterable[StepRow]) -> bytes:
    lines: list[bytes] = []
    at = 0
    for record in (HEADER[:-1], *map(index_record, rows)):
        lines.append(codec.seal(record, at))
        at += len(lines[-1])
    return b"".join(lines)


def closed_step(folder: Path, row: StepRow) -> StepClosed:
    """Read the full record of a row."""
    event = _read(folder, row.at)
    if not isinstance(event, StepClosed) or event.step != row.step:
        raise _unfit(folder)
    return event


def answered_step(folder: Path, row: StepRow) -> Proposed | None:
    """Read the proposer's answer of a row; None without one."""
    if not row.proposed[1]:
        return None
    event = _read(folder, row.proposed[0])
    if not isinstance(event, Proposed) or event.step != row.step:
        raise _unfit(folder)
    return event


def opened_step(folder: Path, row: StepRow) -> StepOpened | None:
    """Read the record that opened a row's step; None if it is not recorded."""
    if row.opened_at < 0:
        return None
    event = _read(folder, row.opened_at)
    if not isinstance(event, StepOpened) or event.step != row.step:
        raise _unfit(folder)
    return event


def _read(folder: Path, at: int) -> Event:
    """Read the record at an offset; errors name its line."""
    spine = folder / "journal.jsonl"
    line = _line_at(spine, at)
    if line is None:
        raise _unfit(folder)
    with naming(spine, at):
        event = event_of(line, at)
        check_told(event, _recipe_of(spine))
    return event


def _recipe_of(spine: Path) -> str:
    """Recipe of a spine's run; empty if its first record does not start a run."""
    with spine.open("rb") as file, naming(spine, 0):
        first = event_of(file.readline(), 0)
    return first.recipe if isinstance(first, RunStarted) else ""


def _line_at(spine: Path, at: int) -> bytes | None:
    """Read the complete line that begins at an offset; None if none begins there."""
    with spine.open("rb") as file:
        file.seek(max(0, at - 1))
        before = file.read(1) if at else b"\n"
        line = file.readline()
    return line if before == b"\n" and line.endswith(b"\n") else None


def _unfit(folder: Path) -> JournalError:
    return JournalError(
        f"{folder / 'journal.jsonl'} was changed by something else while it was read",
        hint="begin again; what its steps.idx no longer fits is made from the journal",
    )


def _trusted(index: Path, spine: Path) -> list[StepRow]:
    """Read the rows of the index file, up to the first that does not fit."""
    if not index.exists() or not spine.exists():
        return []
    end = spine.stat().st_size
    rows: list[StepRow] = []
    at = 0
    with index.open("rb") as file:
        for line in file:
            try:
                moved = codec.unseal(line) != at or not line.endswith(b"\n")
                at += len(line)
                if line.endswith(HEADER[1:]):
                    continue
                row = _rows.decode(line).row
            except ValueError:
                break
            if (
                moved
                or row.step != len(rows)
                or row.at + row.size > end
                or not line.endswith(b"\n")
            ):
                break
            rows.append(row)
    # checking the last row is enough: for another journal, or if lines before were changed in
    # length, no record of that size begins at its offset
    if rows:
        last = _line_at(spine, rows[-1].at)
        if last is None or len(last) != rows[-1].size or not last.endswith(ENDS[0]):
            return []
    return rows


def _events_from(spine: Path, start: int) -> Iterator[tuple[Event, int, int]]:
    """Yield the complete records of steps behind an offset, each with its offset and size."""
    if not spine.exists():
        return
    with spine.open("rb") as file:
        file.seek(start)
        at = start
        for line in file:
            if not line.endswith(b"\n"):
                return
            try:
                event = event_of(line, at)
            except ValueError as error:
                raise damaged_at(spine, at, error) from error
            if isinstance(event, StepClosed | StepOpened | Proposed):
                yield event, at, len(line)
            at += len(line)
