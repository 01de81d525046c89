"""Verification of all files of a run, and repair: damage is cut out, so that a resume works."""

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Literal, NamedTuple

from kept.core.artifact import Candidate
from kept.core.event import Event, RunStarted, StepClosed, StepOpened
from kept.errors import JournalError
from kept.store import codec
from kept.store.candidate_files import set_aside, swap_best
from kept.store.export_digests import FILE as EXPORTS
from kept.store.export_digests import changed_exports
from kept.store.home import Home
from kept.store.jsonl import (
    INDEX,
    LARGEST,
    Appender,
    StoredLine,
    check_whole,
    closed_sizes,
    event_of,
    line_number,
    load_candidate,
    stored_lines,
)
from kept.store.lock import Lock, holder
from kept.store.pack import Pack
from kept.store.reader import fold_run
from kept.store.step_index import is_index_of

Severity = Literal["ok", "warning", "problem"]

COPY = "restore the file from a copy"
REPAIR = f"{COPY}; or `kept doctor RUN --repair`, then `kept resume RUN`"
MOVED_ASIDE = "`kept resume RUN` moves it aside"
NOT_NEEDED = f"{COPY}; the run goes on without it"
READABLE = "nothing to do: it can be read"
UNUSED = "nothing to do: no command reads it"
REBUILT = "nothing to do: it is not used, and `kept resume` writes it again"


class Damage(NamedTuple):
    """One finding: a file that is intact, or a damage."""

    place: str
    """File of the run, with the line if known."""
    severity: Severity
    what: str
    remedy: str = ""


class _Spine(NamedTuple):
    """Readable part of the journal, and its damages."""

    events: Sequence[Event]
    offsets: Sequence[int]
    """Offset of each event, and the end of the last one."""
    damages: Sequence[Damage]


def verify_run(folder: Path) -> list[Damage]:
    """Find all damage to the files of a run; intact files have one `ok` finding each."""
    spine = _read_spine(folder)
    steps = _Steps(spine)
    found = [*spine.damages, *_rollouts(folder, steps), *_pack(folder, spine, steps)]
    found += [*_indexes(folder, spine), *_best(folder, spine)]
    for path in sorted(folder.glob("*.torn")):
        what = f"holds {path.stat().st_size} bytes that were moved aside by an earlier resume"
        found.append(Damage(path.name, "ok", what))
    files = [path for path in folder.iterdir() if not path.is_symlink()]
    readable = sorted(path.name for path in files if path.stat().st_mode & 0o077)
    if readable:
        what = f"others may read {', '.join(readable[:4])}"
        found.append(Damage(".", "warning", what, f"chmod -R go= {folder}"))
    found += _exports(folder, spine)
    damaged = {one.place.partition(":")[0] for one in found}
    names = ("journal.jsonl", "rollouts.jsonl", "blobs.pack", INDEX, "blobs.idx", "best", EXPORTS)
    there = [name for name in names if (folder / name).exists() and name not in damaged]
    return [*found, *(Damage(name, "ok", "verified") for name in there)]


def repair_run(folder: Path) -> list[str]:
    """Cut damage out, so that a resume can redo what was lost; return the actions in words.

    Nothing is discarded: the parts cut out are appended to `NAME.torn`. The journal is cut before
    the first step that lost anything. A resume redoes the later steps from the replies and rollouts
    that are intact.
    """
    lock = Lock(folder)
    try:
        spine = _read_spine(folder)
        steps = _Steps(spine)
        for _ in (*_rollouts(folder, steps), *_pack(folder, spine, steps)):
            pass  # run only to collect the steps that lost something
        done = _blank_rollouts(folder)
        cut = min(spine.offsets[-1], steps.first_lost_at)
        if 0 < cut < (folder / "journal.jsonl").stat().st_size:
            done.append(_cut(folder / "journal.jsonl", cut))
        if any(one.severity != "ok" for one in _indexes(folder, spine, locked=True)) or done:
            for name in (INDEX, "blobs.idx"):
                (folder / name).unlink(missing_ok=True)
        if any(_best(folder, _read_spine(folder))):  # of the journal as cut above
            done.append(_write_best(folder))
        return done
    finally:
        lock.release()


def _cut(path: Path, at: int) -> str:
    with path.open("r+b") as file:
        file.seek(at)
        rest = file.read()
        set_aside(path, rest)
        file.truncate(at)
        os.fsync(file.fileno())
    lines = rest.count(b"\n")
    return f"moved the last {lines} lines of {path.name} to {path.name}.torn"


def _write_best(folder: Path) -> str:
    best = folder / "best"
    state = fold_run(_read_spine(folder).events).state
    with closing(Pack(folder, writable=False)) as pack:
        candidate = load_candidate(pack, state.best)
    files = [name for name in candidate.texts if (best / name).is_file()]
    # the journal has no mode bits, so those of the present files are kept
    modes = {name: (best / name).stat().st_mode & 0o777 for name in files}
    if best.is_symlink():
        best.unlink()  # else `swap_best` would trust the link and do nothing
    swap_best(folder, candidate, modes)
    return "wrote best/ again"


def _read_spine(folder: Path) -> _Spine:
    path = folder / "journal.jsonl"
    events: list[Event] = []
    offsets = [0]
    damages: list[Damage] = []
    lines = path.read_bytes().split(b"\n")
    at = 0
    for number, line in enumerate(lines[:-1], 1):
        try:
            event = event_of(line, at)
            if not damages:
                events.append(event)
                offsets.append(at + len(line) + 1)
        except (ValueError, JournalError) as error:
            # without its first record a journal cannot be repaired
            remedy = REPAIR if number > 1 else COPY
            words = error.message if isinstance(error, JournalError) else str(error)
            damages.append(Damage(f"{path.name}:{number}", "problem", words, remedy))
        at += len(line) + 1
    if not damages:
        damages = [*_fold_damage(folder, events, at, lines[-1])]
    return _Spine(events, offsets, damages)


def _fold_damage(folder: Path, events: list[Event], end: int, torn: bytes) -> Iterator[Damage]:
    path = folder / "journal.jsonl"
    try:
        check_whole(path, end)
        fold_run(events, path)
    except JournalError as error:
        place, _, what = error.message.removeprefix(f"{folder}/").partition(": ")
        yield Damage(place, "problem", what, REPAIR if events else COPY)
        return
    if not events:
        yield Damage(f"{path.name}:1", "problem", "the file is empty", COPY)
    if torn and holder(folder) is None:
        what = f"an unfinished line of {len(torn)} bytes at the end, as a crash leaves it"
        yield Damage(f"{path.name}:{len(events) + 1}", "warning", what, MOVED_ASIDE)


class _Steps:
    """Byte ranges of steps in the rollout file, and the steps that lost something."""

    def __init__(self, spine: _Spine) -> None:
        self._opened = {
            event.step: at
            for event, at in zip(spine.events, spine.offsets, strict=False)
            if isinstance(event, StepOpened)
        }
        closed = [event for event in spine.events if isinstance(event, StepClosed)]
        self.ranges = {event.step: event.rollouts for event in closed}
        self.end = max((end for _, end in self.ranges.values()), default=0)
        self.opened = max(self._opened, default=-1)
        """Last step that was opened in the journal; -1 without any."""
        self._end_of_spine = spine.offsets[-1]
        self._lost: set[int] = set()

    def lose(self, start: int, end: int) -> str:
        """Record lost bytes of the rollout file; describe the steps that they may belong to."""
        hit = [n for n, (first, last) in self.ranges.items() if first < end and start < last]
        self._lost.update(hit)
        return (
            f"of step {hit[0]}"
            if len(hit) == 1
            else "of no closed step"
            if not hit
            else (f"of one of the steps {hit[0]} to {hit[-1]}")
        )

    def lose_step(self, step: int) -> None:
        """Record that something that a step needs is lost."""
        self._lost.add(step)

    @property
    def first_lost_at(self) -> int:
        """Offset in the journal at which the first step that lost something was opened."""
        places = [self._opened[step] for step in self._lost if step in self._opened]
        return min(places, default=self._end_of_spine)


def _rollouts(folder: Path, steps: _Steps) -> Iterator[Damage]:
    path = folder / "rollouts.jsonl"
    last = later = 0
    for one in stored_lines(path, least=steps.end):
        what = one.problem
        if not what:
            last = codec.unseal(one.line) + len(one.line)
            try:
                row = codec.decode_line(one.line)
            except ValueError as error:
                what = str(error)
            else:
                # a step is opened before anything is rolled out for it
                later = max(later, row.step if isinstance(row, codec.RolloutLine) else 0)
        if what:
            # missing lines have unknown sizes: all bytes up to the last step's end may be lost
            size = len(one.line) or (steps.end - last if last < steps.end else 1)
            whose = steps.lose(last, last + size)
            remedy = REPAIR if whose != "of no closed step" else "`kept resume RUN` asks again"
            place = f"{path.name}:{line_number(path, one.at)}"
            yield Damage(place, "problem", f"{what} ({whose})", remedy)
    torn = _unfinished_line(path) if holder(folder) is None else 0
    if torn:
        what = f"an unfinished line of {torn} bytes at the end, as a crash leaves it"
        place = f"{path.name}:{line_number(path, path.stat().st_size)}"
        yield Damage(place, "warning", what, MOVED_ASIDE)
    if later > max(steps.opened, 0) and holder(folder) is None:
        what = f"the end is missing: {path.name} has rollouts of step {later}"
        remedy = "`kept resume RUN` does those steps again, with the rollouts that are there"
        yield Damage("journal.jsonl", "warning", what, remedy)


def _unfinished_line(path: Path) -> int:
    """Number of bytes behind the last newline of a file."""
    if not path.exists():
        return 0
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - LARGEST))
        return len(file.read().rpartition(b"\n")[2])


def _blank_rollouts(folder: Path) -> list[str]:
    """Move lines aside that are damaged, or whose trace or reply is; a resume redoes them."""
    path = folder / "rollouts.jsonl"
    damaged = [one for one in stored_lines(path) if one.problem and one.line]
    with closing(Pack(folder, writable=False)) as pack:
        whole = {key for key, place in pack.entries() if pack.is_whole(key, place)}
    damaged += [one for one, _ in _lost_references(path, whole)]
    if not damaged:
        return []
    with closing(Appender(path)) as file:
        for one in damaged:
            file.blank_out(one.at, one.line)
    return [f"moved {len(damaged)} lines of {path.name} to {path.name}.torn"]


def _pack(folder: Path, spine: _Spine, steps: _Steps) -> Iterator[Damage]:
    with closing(Pack(folder, writable=False)) as pack:
        whole: set[str] = set()
        damaged: dict[str, int] = {}
        end = pack.start
        for key, place in pack.entries():
            if place.at > end:
                what = f"{place.at - end} bytes at byte {end} belong to no entry"
                yield Damage(pack.path.name, "problem", what, f"the rest is found again; {COPY}")
            end = place.end
            if not pack.is_whole(key, place):
                damaged[key] = place.at
                continue
            whole.add(key)
            if pack.has_damaged_frame(key, place):
                entry = f"the entry {key} at byte {place.at}"
                what = f"the header or the end of {entry} is damaged, its bytes are not"
                yield Damage(pack.path.name, "warning", what, READABLE)
        size = pack.path.stat().st_size if pack.path.exists() else 0
        if end < size and holder(folder) is None:
            what = f"{size - end} bytes at the end belong to no whole entry"
            remedy = f"`kept resume RUN` moves them to {pack.path.name}.torn"
            yield Damage(pack.path.name, "warning", what, remedy)
        lost = list(_references(folder, spine, steps, pack, whole))
        for key, at in damaged.items():
            what = f"the entry {key} at byte {at} does not match its digest"
            if key in whole:
                yield Damage(pack.path.name, "warning", f"{what}, another one does", READABLE)
            elif not _is_named(folder, pack, whole, key):
                yield Damage(pack.path.name, "warning", f"{what}, nothing refers to it", UNUSED)
            else:
                repairable = any(key in one.what for one in lost)
                yield Damage(pack.path.name, "problem", what, REPAIR if repairable else NOT_NEEDED)
        yield from lost


def _is_named(folder: Path, pack: Pack, whole: set[str], key: str) -> bool:
    """True if a record or an intact entry, such as a list of files, refers to an entry."""
    needle = f'"{key}"'.encode()
    files = (folder / "journal.jsonl", folder / "rollouts.jsonl")
    if any(path.exists() and needle in path.read_bytes() for path in files):
        return True
    return any(needle in pack.get(one) for one in whole)


def _references(
    folder: Path, spine: _Spine, steps: _Steps, pack: Pack, whole: set[str]
) -> Iterator[Damage]:
    """Find entries that the journal or the rollout file refer to but that are lost."""
    path = folder / "rollouts.jsonl"
    for one, key in _lost_references(path, whole):
        at = codec.unseal(one.line)
        whose = steps.lose(at, at + 1)
        what = f"refers to the entry {key} of {pack.path.name}, which is lost ({whose})"
        yield Damage(f"{path.name}:{line_number(path, one.at)}", "problem", what, REPAIR)
    yield from _candidates(spine, steps, pack)


def _lost_references(path: Path, whole: set[str]) -> Iterator[tuple[StoredLine, str]]:
    """Yield lines whose trace or reply in the pack cannot be read, with its key."""
    for one in stored_lines(path):
        try:
            row = None if one.problem else codec.decode_line(one.line)
        except ValueError:
            continue
        key = ""
        if isinstance(row, codec.RolloutLine):
            key = row.trace
        elif isinstance(row, codec.CallLine) and row.stored:
            key = codec.decode(row.reply, str)
        if key and key not in whole:
            yield one, key


def _candidates(spine: _Spine, steps: _Steps, pack: Pack) -> Iterator[Damage]:
    if not spine.events:
        return
    state = fold_run(spine.events).state
    needed = {state.seed: -1, state.incumbent: -1, state.best: -1}
    for event in spine.events:
        if isinstance(event, StepClosed) and event.candidate and event.verdict.outcome == "keep":
            needed[event.candidate] = event.step
    for id_, step in needed.items():
        try:
            load_candidate(pack, id_)
        except JournalError as error:
            steps.lose_step(step)
            what = error.message.removeprefix(f"{pack.path}").lstrip(": ")
            remedy = REPAIR if step >= 0 else COPY
            yield Damage(pack.path.name, "problem", f"candidate {id_}: {what}", remedy)


def _indexes(folder: Path, spine: _Spine, *, locked: bool = False) -> Iterator[Damage]:
    """Find indexes that do not fit; `locked` if this process holds the lock of the run."""
    steps = folder / INDEX
    stopped = bool(spine.events) and spine.events[-1].kind == "run_stopped"
    ended = stopped and (locked or holder(folder) is None)
    if not spine.damages and steps.exists() and not is_index_of(steps, folder / "journal.jsonl"):
        yield Damage(INDEX, "warning", "does not fit the journal", REBUILT)
    elif not spine.damages and steps.exists() and closed_sizes(folder) is None and ended:
        yield Damage(INDEX, "warning", "its end is missing", REBUILT)
    with closing(Pack(folder, writable=False)) as pack:
        if not pack.fits_index(whole=ended):
            yield Damage("blobs.idx", "warning", "does not fit blobs.pack", REBUILT)
    index = Home.around(folder).index
    if index is not None and index.exists():
        what = _database_damage(index)
        if what:
            remedy = "remove it: `kept runs` makes it again"
            yield Damage(f"../../{index.name}", "warning", what, remedy)


def _database_damage(path: Path) -> str:
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as database:
            told = str(database.execute("PRAGMA integrity_check(1)").fetchone()[0])
    except (sqlite3.Error, UnicodeDecodeError) as error:
        return str(error)
    return "" if told == "ok" else told.replace("\n", " ")


def _best(folder: Path, spine: _Spine) -> Iterator[Damage]:
    """Report `best/` if its files differ from the best candidate."""
    best = folder / "best"
    if spine.damages or not spine.events or not best.is_dir():
        return
    want = fold_run(spine.events).state.best
    try:
        with closing(Pack(folder, writable=False)) as pack:
            candidate = load_candidate(pack, want)
    except JournalError:
        return  # reported with the pack
    files = {
        str(path.relative_to(best)): path.read_bytes().decode("utf-8", "surrogateescape")
        for path in sorted(best.rglob("*"))
        if path.is_file()
    }
    if Candidate(files, candidate.blobs).id != want:
        names = sorted({*files} | {*candidate.texts})
        wrong = [name for name in names if files.get(name) != candidate.texts.get(name)]
        what = f"is not the best candidate: {', '.join(wrong[:4])}"
        yield Damage("best", "problem", what, "`kept doctor RUN --repair` writes it again")


def _exports(folder: Path, spine: _Spine) -> Iterator[Damage]:
    """Find files outside the folder that differ from what the run wrote."""
    first = spine.events[0] if spine.events else None
    if not isinstance(first, RunStarted) or holder(folder) is not None:
        return
    for one in changed_exports(folder, first.run_id):
        if one.kind == "changed":
            what = f"{one.what}: it was changed, or another run wrote it"
            yield Damage(one.place, "warning", what, "`kept resume RUN` writes it again")
        else:
            remedy = "nothing to do: no command reads it, and `kept resume RUN` notes them again"
            yield Damage(one.place, "warning", f"{one.what}: digests of exports are lost", remedy)
