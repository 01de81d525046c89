"""Output folder of an optimizer run, runnable candidate files, and progress events.

`results/optimizer/RUN/` is for people to inspect and adopt, written from the journal:

    run.json             request of the run, written once
    trials.jsonl         one line per trial
    trajectory.csv       short form of the trials, for plotting
    exit.json            reason of the end
    candidates/          iter-NN.yaml of every accepted trial, runnable in place
    instructions/        files that an accepted trial changed
    cases/               cases whose files are outside of the agent's folder
    best.yaml            a link to the best of them, and best-instructions.md to its instructions

A candidate's agent.yaml keeps its comments and includes the values set on the command line.
Changed files are in `instructions/`, and the agent.yaml points there. Paths within the agent's
folder work through links beside the candidate. Paths that leave it are rewritten to reach the
same target.

Progress events report phases, cycles and trials of coordinate descent.
"""

import io
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from kept.core.artifact import Candidate, NoSpan
from kept.core.event import Event, Proposed, RunStopped, StepOpened, StepRecords
from kept.core.objective import Objective
from kept.core.parsing import MAX_DEPTH
from kept.core.ports import Journal
from kept.core.proposal import Proposal
from kept.core.schedules.coordinate import BASELINE, cycle_of, phase_of
from kept.core.state import State
from kept.core.text import encoded
from kept.recipes.agent_config.outputs.trials import (
    Trial,
    Trials,
    candidate_path,
    csv_of,
    row_of,
    stamp,
)
from kept.spec.locate.tree import locate, locate_or_insert, read_value, show_path, with_texts
from kept.store.candidate_files import open_folder
from kept.store.exports import View

Setting = tuple[tuple[str | int, ...], object]
"""Location and value of a setting from outside the file."""

CASES = (
    "test_cases_file",
    *(f"evaluations.optimizer.{split}_cases_file" for split in ("train", "holdout", "test")),
)
"""Keys that name case files, whose own paths are relative to the agent.yaml."""

LONGEST = 4096
"""Maximum length of a path; longer texts are not looked up on disk."""


def with_settings(name: str, text: str, settings: Sequence[Setting]) -> str:
    """Apply the settings of a command line to an agent.yaml."""
    for loc, value in settings:
        key = show_path(loc)
        plain = isinstance(value, str | int | float)
        span = locate_or_insert(name, text, key) if plain else None
        if span is None or isinstance(span, NoSpan):
            text = _with_whole(text, loc, value)
        elif isinstance(value, str | int | float):
            text = text[: span.start] + span.render(value) + text[span.end :]
    return text


def _with_whole(text: str, loc: tuple[str | int, ...], value: object) -> str:
    """Set a mapping or list; comments and order are preserved."""
    from ruamel.yaml import YAML

    yaml: Any = YAML()
    yaml.preserve_quotes = True
    yaml.width = LONGEST
    yaml.max_depth = MAX_DEPTH
    data: Any = yaml.load(text)
    _put(data, loc, value)
    out = io.StringIO()
    yaml.dump(data, out)
    return out.getvalue()


def _put(here: Any, loc: tuple[str | int, ...], value: object) -> None:  # noqa: ANN401 # the library has no types
    first, *rest = loc
    if not rest:
        here[first] = value
        return
    if isinstance(first, str) and first not in here:
        here[first] = {}
    if here[first] is None:
        here[first] = {}
    _put(here[first], tuple(rest), value)


def led_from(name: str, text: str, source: Path, place: Path) -> str:
    """Move a text to another folder: its paths that leave the folder are rewritten."""
    return with_texts(name, text, partial(_led, source, place))


def _led(source: Path, place: Path, said: str) -> str | None:
    if "\n" in said or "${" in said or len(said) > LONGEST:
        return None
    if Path(os.path.normpath(said)).parts[:1] != ("..",):
        return None
    target = source / said
    there = any(source.glob(said)) if any(sign in said for sign in "*?[") else target.exists()
    return Path(os.path.relpath(target, place)).as_posix() if there else None


class CaseFiles:
    """Case files with paths that leave the folder: these are rewritten for candidates."""

    def __init__(self, source: Path, place: Path) -> None:
        self._source = source
        self._place = place
        self._known: dict[str, str | None] = {}

    def written(self, name: str, text: str) -> tuple[dict[str, str], dict[str, str]]:
        """New case files by path, and their names by key of the agent.yaml."""
        files, keys = dict[str, str](), dict[str, str]()
        for key in CASES:
            said = read_value(name, text, key)
            new = self._text(said) if isinstance(said, str) else None
            if new is not None:
                path = f"cases/{len(keys)}-{Path(str(said)).name}"
                files[path] = new
                keys[key] = f"../{path}"
        return files, keys

    def _text(self, said: str) -> str | None:
        """Case file for the other folder; None if the original can be used."""
        if said not in self._known:
            path = self._source / said
            try:
                old = path.read_text(encoding="utf-8-sig")
            except (OSError, UnicodeDecodeError):
                return None  # unreadable or gone: an error is reported when the candidate is run
            kind = "cases.json" if path.suffix == ".json" else "cases.yaml"
            new = led_from(kind, old, self._source, self._place)
            self._known[said] = None if new == old else new
        return self._known[said]


FILE = "instructions.file"
"""Key in an agent.yaml that names the file of instructions."""

NOT_LINKED = ("results", "node_modules", "__pycache__")
"""Folders that are no part of an agent, and may be large or contain a cycle."""


class Lying:
    """Assigns a file name to every changed text, once."""

    def __init__(
        self, agent: Path, instructions: str, place: Path, settings: Sequence[Setting] = ()
    ) -> None:
        """Store the settings; `place` is the folder of candidates."""
        self._agent = agent.name
        self._folder = agent.parent
        self._place = place
        self._instructions = instructions
        self._settings = settings
        self._cases = CaseFiles(agent.parent, place)
        self._first: dict[str, str] = {}
        """Texts of the first candidate."""
        self._names: dict[tuple[str, str], str] = {}
        """File name of each text, by original path and text."""

    def files(self, number: int, candidate: Candidate) -> dict[str, str]:
        """Files of a trial by relative path."""
        self._first = self._first or dict(candidate.texts)
        found = dict[str, str]()
        agent = with_settings(self._agent, candidate.texts[self._agent], self._settings)
        cases, keys = self._cases.written(self._agent, agent)
        agent = led_from(self._agent, agent, self._folder, self._place)
        for key, name in keys.items():
            agent = self._set(agent, key, name)
        for path, text in candidate.texts.items():
            if path != self._agent and text != self._first.get(path):
                name = self._names.setdefault((path, text), self._name(path, number))
                found[name] = text
                agent = self._renamed(agent, path, f"../{name}")
        return found | cases | {f"candidates/iter-{number:02}.yaml": agent}

    def instructions_of(self, candidate: Candidate) -> str:
        """File with a candidate's instructions, if the run changed them; else empty."""
        text = candidate.texts.get(self._instructions)
        return "" if text is None else self._names.get((self._instructions, text), "")

    def _renamed(self, text: str, old: str, new: str) -> str:
        """Replace every mention of a file in the agent.yaml."""
        for key in _mentions(self._agent, text):
            said = read_value(self._agent, text, key)
            # the name may be written as `${VAR}`
            own = key == FILE and old == self._instructions
            if own or (isinstance(said, str) and Path(said).as_posix() == old):
                text = self._set(text, key, new)
        return text

    def _set(self, text: str, key: str, new: str) -> str:
        span = locate(self._agent, text, key)
        if isinstance(span, NoSpan):
            return text
        return text[: span.start] + span.render(new) + text[span.end :]

    def _name(self, path: str, number: int) -> str:
        file = Path(path)
        stem = "system-prompt" if path == self._instructions else file.stem
        return f"instructions/{stem}.iter-{number:02}{file.suffix}"


def _mentions(agent: str, text: str) -> Iterator[str]:
    """Keys that may name a file that a run may change."""
    yield FILE
    number = 0
    while not isinstance(read_value(agent, text, f"tools[{number}].name"), NoSpan):
        yield f"tools[{number}].file"
        number += 1


def link_beside(source: Path, place: Path, names: Iterable[str]) -> None:
    """Link the files that an agent names into another folder.

    Only files and folders directly beside the agent are linked; paths that leave it are rewritten.
    """
    for top in dict.fromkeys(Path(os.path.normpath(name)).parts[:1] for name in names):
        for entry in sorted(source.glob(*top)) if top and top[0] not in ("..", ".", "/") else ():
            link = place / entry.name
            if entry.resolve() in (place, *place.parents) or entry.name in NOT_LINKED:
                continue
            if not link.is_symlink() and not link.exists():
                link.symlink_to(os.path.relpath(entry, place))


BEST = "best.yaml"
BEST_TEXT = "best-instructions.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """Tuned agent, and the places of its results."""

    agent: Path
    """The agent.yaml."""
    place: Path
    """Folder of all runs, or of this one if the user named it."""
    named: bool = False
    instructions: str = ""
    """File of its instructions, by its name in candidates; else empty."""
    files: Sequence[str] = ()
    """Files that the agent names besides its agent.yaml, as relative paths or patterns."""
    weights: Mapping[str, float]
    objective: Objective
    settings: Sequence[Setting] = ()
    """Command-line settings of the agent.yaml, without secrets."""
    header: Mapping[str, Any]
    """Content of `run.json` besides the run itself."""

    def folder(self, run: str) -> Path:
        """Folder of a run's files."""
        return self.place if self.named else self.place / run


class TuningFolder(View):
    """View that writes a trial when its step closes."""

    def __init__(self, tuned: Tuned, journal: Journal) -> None:
        super().__init__(journal)
        self._tuned = tuned
        self._trials = Trials()
        self._lying: Lying | None = None

    @property
    def folder(self) -> Path:
        """Output folder of the run."""
        return self._tuned.folder(self.run)

    @property
    def lying(self) -> Lying:
        """Writer of candidate files, created when the run is known."""
        if self._lying is None:
            tuned, place = self._tuned, self.folder / "candidates"
            self._lying = Lying(tuned.agent, tuned.instructions, place, tuned.settings)
        return self._lying

    def begin(self, steps: Iterable[StepRecords]) -> None:
        """Rewrite all files except the header, which is written once."""
        self._trials = Trials()
        self._lying = None
        folder = self.folder
        with open_folder(folder / "candidates", self._tuned.place):
            pass
        link_beside(self._tuned.agent.parent, folder / "candidates", self._tuned.files)
        header = _json(self._header())
        if not (path := folder / "run.json").exists() or path.read_bytes() == header:
            self.put(path, header, self._tuned.place)
        rows = list[dict[str, Any]]()
        for step in steps:
            trial = self._heard(step)
            if trial is not None:
                rows.append(self._row(trial))
        trials = b"".join(map(_line, rows))
        self.replace(folder / "trials.jsonl", trials, self._tuned.place)
        self._write_table()

    def closed(self, step: StepRecords) -> None:
        """Write one more trial."""
        trial = self._heard(step)
        if trial is None:
            return
        path, line = self.folder / "trials.jsonl", _line(self._row(trial))
        self.append(path, line, self._tuned.place)
        self._write_table()

    def _heard(self, step: StepRecords) -> Trial | None:
        """Convert a step to a trial, and write its candidate if it was accepted."""
        trial = self._trials.hear(step)
        if trial is not None and trial.accepted and trial.candidate is not None:
            self._write_candidate(trial.number, self.journal.load(trial.candidate))
        first = trial is not None and trial.number == 0
        if (step.closed.verdict.best or first) and step.closed.candidate is not None:
            self._point(step.closed.candidate)
        return trial

    def _write_candidate(self, number: int, candidate: Candidate) -> None:
        for name, text in self.lying.files(number, candidate).items():
            path = self.folder / name
            if path.parent == self.folder / "candidates" and path.is_symlink():
                path.unlink()  # our own link to a file of this name beside the agent
            self._write(name, encoded(text))

    def _point(self, candidate: str) -> None:
        """Point the links to the current best candidate."""
        made = next((t for t in self._trials.rows if t.accepted and t.candidate == candidate), None)
        if made is None:
            return  # the seed, before its measurement was accepted
        _link(self.folder / BEST, candidate_path(made.number))
        text = self.lying.instructions_of(self.journal.load(candidate))
        if text:
            _link(self.folder / BEST_TEXT, text)
        else:
            (self.folder / BEST_TEXT).unlink(missing_ok=True)

    def _row(self, trial: Trial) -> dict[str, Any]:
        return row_of(trial, self._tuned.weights, self._tuned.objective)

    def _write_table(self) -> None:
        self._write("trajectory.csv", csv_of(self._trials.rows).encode())

    def _write(self, name: str, data: bytes) -> None:
        self.put(self.folder / name, data, self._tuned.place)

    def _header(self) -> dict[str, Any]:
        started = self._records.started
        assert started is not None, "the first event is `run_started`"
        agent = os.path.relpath(self._tuned.agent, self.folder)
        return {
            "run_id": started.run_id,
            "started_at": stamp(started.t),
            "kept_version": started.version,
            "baseline_agent_path": agent,
            **self._tuned.header,
        }


def prune(folder: Path) -> list[str]:
    """Remove candidates and texts other than the best; the record of trials stays."""
    kept = {(folder / name).resolve() for name in (BEST, BEST_TEXT) if (folder / name).exists()}
    gone: list[str] = []
    for place in ("candidates", "instructions"):
        if (folder / place).is_symlink():
            continue
        for path in sorted((folder / place).glob("*iter-*")):
            if path.resolve() not in kept and not path.is_symlink():
                path.unlink()
                gone.append(path.name)
    return gone


def exit_bytes(reason: str, phases: Mapping[str, str]) -> bytes:
    """Content of `exit.json`: the reason of the end, unknown when the header is written."""
    return _json({"exit_reason": reason, "phase_exit_reasons": dict(phases)})


def _link(path: Path, target: str) -> None:
    """Replace a link atomically."""
    fresh = path.with_name(f".{path.name}.new")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(target)
    fresh.replace(path)


def _json(data: Mapping[str, Any]) -> bytes:
    return encoded(json.dumps(data, indent=2, ensure_ascii=False)) + b"\n"


def _line(row: Mapping[str, Any]) -> bytes:
    # surrogates stand for bytes that are not UTF-8; only escapes can represent them
    return json.dumps(row, ensure_ascii=True).encode() + b"\n"


@dataclass(frozen=True, slots=True)
class Begun:
    """A trial that has a proposal and is being measured."""

    number: int
    cycle: int
    phase: str
    baseline_loss: float | None
    params: Mapping[str, object]
    axis: str
    summary: str


@dataclass(frozen=True, slots=True)
class PhaseBegun:
    """Start of a phase."""

    cycle: int
    phase: str
    nth: int
    """Number of this phase among those of its kind, from 1."""
    improved: bool
    """True if texts have changed since the run began."""


@dataclass(frozen=True, slots=True)
class PhaseDone:
    """End of a phase."""

    cycle: int
    phase: str
    trials: int
    accepted: int


@dataclass(frozen=True, slots=True)
class CycleDone:
    """End of a cycle."""

    cycle: int
    accepted: int
    best_loss: float | None
    dry: bool


class Listener:
    """Base class of listeners for progress events; all methods do nothing."""

    def run_started(self, run: str, state: State, *, resumed: bool) -> None:
        """A session begins."""

    def taken_up(self, baseline: Trial) -> None:
        """A run with a known baseline is resumed."""

    def phase_started(self, begun: PhaseBegun) -> None:
        """A phase begins."""

    def cycle_started(self, cycle: int) -> None:
        """A cycle begins."""

    def trial_begun(self, begun: Begun) -> None:
        """A trial has a proposal."""

    def trial_done(self, trial: Trial) -> None:
        """A trial has its verdict."""

    def phase_done(self, done: PhaseDone) -> None:
        """A phase has ended."""

    def cycle_done(self, done: CycleDone) -> None:
        """A cycle has ended."""


class Teller(View):
    """View that reports trials to a listener; those of earlier sessions are not repeated."""

    def __init__(self, listener: Listener, journal: Journal) -> None:
        super().__init__(journal)
        self._listener = listener
        self._trials = Trials()
        self._label = ""
        """Label of the current phase, as in turns."""

    def begin(self, steps: Iterable[StepRecords]) -> None:
        """Read past steps without reporting them."""
        for step in steps:
            self._trials.hear(step)

    def closed(self, step: StepRecords) -> None:
        """Report a finished trial."""
        trial = self._trials.hear(step)
        if trial is not None:
            self._listener.trial_done(trial)

    def on_event(self, event: Event, state: State) -> None:
        """Report starts and ends of phases, and proposals, besides closed steps."""
        super().on_event(event, state)
        match event:
            case StepOpened():
                self._opened(event.turn.phase)
            case Proposed() if isinstance(event.reply, Proposal):
                self._begun(event.reply, state)
            case RunStopped() if not event.reason.resumable:
                self._phase_over("")
            case _:
                if event.kind in ("run_started", "run_resumed"):
                    resumed = event.kind == "run_resumed"
                    self._listener.run_started(self.run, state, resumed=resumed)
                    self._taken_up(state)

    def _taken_up(self, state: State) -> None:
        """Report the baseline of a resumed run, and the current cycle and phase."""
        if self._trials.rows:
            self._listener.taken_up(self._trials.rows[0])
        if state.open:
            self._opened(state.open[0].turn.phase)

    def _opened(self, label: str) -> None:
        if label == self._label or not cycle_of(label):
            return
        self._phase_over(label)
        cycle, phase = cycle_of(label), phase_of(label)
        if cycle != cycle_of(self._label):
            self._listener.cycle_started(cycle)
        self._label = label
        rows = self._trials.rows
        cycles = {row.cycle for row in rows if row.phase == phase} | {cycle}
        improved = any(row.accepted and row.phase in ("textual", "demos") for row in rows)
        self._listener.phase_started(PhaseBegun(cycle, phase, len(cycles), improved))

    def _phase_over(self, following: str) -> None:
        cycle, phase = cycle_of(self._label), phase_of(self._label)
        if not cycle:
            return
        rows = [row for row in self._trials.rows if row.cycle == cycle]
        mine = [row for row in rows if row.phase == phase]
        kept = sum(row.accepted for row in mine)
        self._listener.phase_done(PhaseDone(cycle, phase, len(mine), kept))
        if cycle_of(following) != cycle:
            best = self._trials.rows[-1].after.train if self._trials.rows else None
            whole = sum(row.accepted for row in rows)
            self._listener.cycle_done(CycleDone(cycle, whole, best, dry=not whole))
        if not following:
            self._label = ""

    def _begun(self, proposal: Proposal, state: State) -> None:
        turn = state.open[-1].turn if state.open else None
        if turn is None or turn.phase == BASELINE or not cycle_of(turn.phase):
            return
        rows = self._trials.rows
        params = proposal.about.get("params")
        self._listener.trial_begun(
            Begun(
                number=len(rows),
                cycle=cycle_of(turn.phase),
                phase=phase_of(turn.phase),
                baseline_loss=rows[-1].after.train if rows else None,
                params=params if isinstance(params, Mapping) else {},  # pyright: ignore[reportUnknownArgumentType] # as its author says
                axis=str(turn.settings.get("axis", "")),
                summary=proposal.why,
            )
        )
