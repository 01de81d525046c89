"""Output folder of an optimizer run, runnable candidate files, and progress events.

`results/optimizer/RUN/` is for people to inspect and adopt, written from the journal:

    run.json             what the run was asked, written once
    trials.jsonl         a line a trial
    trajectory.csv       the same in short, for plotting
    exit.json            how it ended
    candidates/          iter-NN.yaml of every accepted trial, ready to be run where it lies
    instructions/        files that an accepted trial changed
    cases/               cases whose files lie outside of the agent's folder
    best.yaml            a link to the best of them, and best-instructions.md to its instructions

A candidate's agent.yaml keeps its comments and includes the values set on the command line.
Changed files lie in `instructions/`, and the agent.yaml points there. Paths within the agent's
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
"""Where a value was set besides the file, and the value."""

CASES = (
    "test_cases_file",
    *(f"evaluations.optimizer.{split}_cases_file" for split in ("train", "holdout", "test")),
)
"""Keys of files whose own paths begin where the agent.yaml is."""

LONGEST = 4096
"""Characters of a path; no text that is longer is looked for on the disk."""


def with_settings(name: str, text: str, settings: Sequence[Setting]) -> str:
    """An agent.yaml with what a command line laid over it."""
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
    """The same for what is no single value; comments and order stay."""
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
    """A text of one folder for another: its paths that lead out lead to where they led."""
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
    """Files of cases that name files outside: those are written anew."""

    def __init__(self, source: Path, place: Path) -> None:
        self._source = source
        self._place = place
        self._known: dict[str, str | None] = {}

    def written(self, name: str, text: str) -> tuple[dict[str, str], dict[str, str]]:
        """The files by where they lie, and which keys of an agent.yaml name them."""
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
        """A file of cases for the other folder; None where the very same will do."""
        if said not in self._known:
            path = self._source / said
            try:
                old = path.read_text(encoding="utf-8-sig")
            except (OSError, UnicodeDecodeError):
                return None  # it was never read, or is gone: whoever runs it is told so
            kind = "cases.json" if path.suffix == ".json" else "cases.yaml"
            new = led_from(kind, old, self._source, self._place)
            self._known[said] = None if new == old else new
        return self._known[said]


FILE = "instructions.file"
"""Where an agent.yaml names the file of its instructions."""

NOT_LINKED = ("results", "node_modules", "__pycache__")
"""What no agent is made of, and may be large or lead in a circle."""


class Lying:
    """Gives every changed file a name of its own, once."""

    def __init__(
        self, agent: Path, instructions: str, place: Path, settings: Sequence[Setting] = ()
    ) -> None:
        """`place` is where candidates lie."""
        self._agent = agent.name
        self._folder = agent.parent
        self._place = place
        self._instructions = instructions
        self._settings = settings
        self._cases = CaseFiles(agent.parent, place)
        self._first: dict[str, str] = {}
        """The texts that the first candidate had."""
        self._names: dict[tuple[str, str], str] = {}
        """The file that holds a text, by what it stands for and the text."""

    def files(self, number: int, candidate: Candidate) -> dict[str, str]:
        """What lies in the folder for a trial, by relative paths."""
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
        """The file that holds the instructions of a candidate, if the run changed them."""
        text = candidate.texts.get(self._instructions)
        return "" if text is None else self._names.get((self._instructions, text), "")

    def _renamed(self, text: str, old: str, new: str) -> str:
        """The agent.yaml with every mention of a file as another."""
        for key in _mentions(self._agent, text):
            said = read_value(self._agent, text, key)
            # its name may stand there as `${VAR}`
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
    """Keys that may name a file which a run may change."""
    yield FILE
    number = 0
    while not isinstance(read_value(agent, text, f"tools[{number}].name"), NoSpan):
        yield f"tools[{number}].file"
        number += 1


def link_beside(source: Path, place: Path, names: Iterable[str]) -> None:
    """Have the files that an agent names be found from another folder as well.

    Links stand for files and folders right beside the agent; paths that lead out are rewritten.
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
    """What is tuned, and where that is written down."""

    agent: Path
    """The agent.yaml."""
    place: Path
    """The folder of all runs, or of this one where a person named it."""
    named: bool = False
    instructions: str = ""
    """The file of its instructions, by the name that candidates have for it; else empty."""
    files: Sequence[str] = ()
    """What the agent names beside its agent.yaml, by relative paths or patterns."""
    weights: Mapping[str, float]
    objective: Objective
    settings: Sequence[Setting] = ()
    """What a command line laid over the agent.yaml, but for secrets."""
    header: Mapping[str, Any]
    """What `run.json` says besides the run itself."""

    def folder(self, run: str) -> Path:
        """Where the files of a run are."""
        return self.place if self.named else self.place / run


class TuningFolder(View):
    """Writes a trial when its step closes."""

    def __init__(self, tuned: Tuned, journal: Journal) -> None:
        super().__init__(journal)
        self._tuned = tuned
        self._trials = Trials()
        self._lying: Lying | None = None

    @property
    def folder(self) -> Path:
        """Where it writes."""
        return self._tuned.folder(self.run)

    @property
    def lying(self) -> Lying:
        """Gives candidates their files; it needs to know the run."""
        if self._lying is None:
            tuned, place = self._tuned, self.folder / "candidates"
            self._lying = Lying(tuned.agent, tuned.instructions, place, tuned.settings)
        return self._lying

    def begin(self, steps: Iterable[StepRecords]) -> None:
        """Write all of it anew, but for the header, which is written once."""
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
        """Take up a step: what it made lies there when this returns."""
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
                path.unlink()  # ours, to a file beside the agent that has this name
            self._write(name, encoded(text))

    def _point(self, candidate: str) -> None:
        """Have the links lead to what is the best now."""
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
    """Take away the candidates and texts that are not the best's; the record of trials stays."""
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
    """`exit.json`: how a run ended; its header is written once, and before that is known."""
    return _json({"exit_reason": reason, "phase_exit_reasons": dict(phases)})


def _link(path: Path, target: str) -> None:
    """Have a link lead there, from one moment to the next."""
    fresh = path.with_name(f".{path.name}.new")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(target)
    fresh.replace(path)


def _json(data: Mapping[str, Any]) -> bytes:
    return encoded(json.dumps(data, indent=2, ensure_ascii=False)) + b"\n"


def _line(row: Mapping[str, Any]) -> bytes:
    # surrogates stand for bytes that are not UTF-8, and only escapes can carry them
    return json.dumps(row, ensure_ascii=True).encode() + b"\n"


@dataclass(frozen=True, slots=True)
class Begun:
    """A trial whose proposal is there, and which is now measured."""

    number: int
    cycle: int
    phase: str
    baseline_loss: float | None
    params: Mapping[str, object]
    axis: str
    summary: str


@dataclass(frozen=True, slots=True)
class PhaseBegun:
    """A phase that begins."""

    cycle: int
    phase: str
    nth: int
    """Of its kind, the first being 1."""
    improved: bool
    """Whether texts have changed since the run began."""


@dataclass(frozen=True, slots=True)
class PhaseDone:
    """A phase that is over."""

    cycle: int
    phase: str
    trials: int
    accepted: int


@dataclass(frozen=True, slots=True)
class CycleDone:
    """A cycle that is over."""

    cycle: int
    accepted: int
    best_loss: float | None
    dry: bool


class Listener:
    """Hears nothing; who wants to hear something says so."""

    def run_started(self, run: str, state: State, *, resumed: bool) -> None:
        """A sitting begins."""

    def taken_up(self, baseline: Trial) -> None:
        """A run goes on whose baseline is known."""

    def phase_started(self, begun: PhaseBegun) -> None:
        """A phase begins."""

    def cycle_started(self, cycle: int) -> None:
        """A cycle begins."""

    def trial_begun(self, begun: Begun) -> None:
        """A proposal is there."""

    def trial_done(self, trial: Trial) -> None:
        """A trial has its verdict."""

    def phase_done(self, done: PhaseDone) -> None:
        """A phase is over."""

    def cycle_done(self, done: CycleDone) -> None:
        """A cycle is over."""


class Teller(View):
    """Hears of steps and tells of trials; what earlier sittings came to is not told again."""

    def __init__(self, listener: Listener, journal: Journal) -> None:
        super().__init__(journal)
        self._listener = listener
        self._trials = Trials()
        self._label = ""
        """The phase that is on, as turns spell it."""

    def begin(self, steps: Iterable[StepRecords]) -> None:
        """Take up the past, silently."""
        for step in steps:
            self._trials.hear(step)

    def closed(self, step: StepRecords) -> None:
        """Tell of a trial."""
        trial = self._trials.hear(step)
        if trial is not None:
            self._listener.trial_done(trial)

    def on_event(self, event: Event, state: State) -> None:
        """Besides, tell of phases as they begin and end, and of proposals."""
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
        """Of a run that goes on: the baseline, and the cycle and phase that are under way."""
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
