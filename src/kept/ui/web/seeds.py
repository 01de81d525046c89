"""Which runs can be refined, where their files lie, and which refinements of them there are.

A run is found by its exact id among those that this home knows of: its own, those that it refined,
and those of its experiments. No path is ever made of what a request says.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast

from kept.core.event import RunStarted
from kept.core.plan import AGENT_RUN, REFINE
from kept.errors import SetupError
from kept.orchestrator.folders import all_experiments
from kept.orchestrator.refine.session import SESSIONS
from kept.orchestrator.refining import sessions_of
from kept.orchestrator.run_folder.files import read_object
from kept.orchestrator.run_folder.places import COMPLETION, deliverable
from kept.orchestrator.run_folder.read import FinishedRun, read_run
from kept.recipes.agent_run.agent_reading import agent_run_of, delivered_by
from kept.recipes.refine.refine import Refinement
from kept.store.lines import event_of
from kept.store.lock import holder
from kept.store.reader import Run
from kept.ui.web.refusing import Refused
from kept.ui.web.source import Runs

ENDED = ("complete", "partial")
"""Runs that left something to start from."""


@dataclass(frozen=True, slots=True)
class Asking:
    """With what a run was made: what a refinement of it is given besides."""

    folder: str = ""
    config: str | None = None
    settings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Seed:
    """A run that may be refined."""

    id: str
    """As addresses have it."""
    folder: Path
    """Where its files lie."""
    ours: bool
    """Whether it is a run of this home."""
    asking: Asking


@dataclass(frozen=True, slots=True)
class Refining:
    """A refinement that this home has."""

    run: str
    folder: Path
    session: str
    file: Path | None = None
    """File of its session; None where its experiment is gone."""

    @property
    def pid(self) -> int | None:
        """Who writes it now."""
        return holder(self.folder)


class _Begun(NamedTuple):
    """What a refinement began with."""

    asked: Refinement
    seed_run: str


class Seeds:
    """The runs of a home that can be refined."""

    def __init__(self, runs: Runs) -> None:
        self.runs = runs
        self._known: dict[str, _Begun | None] = {}
        """By run, what a refinement began with; None for runs of other kinds."""

    def find(self, name: str) -> Seed:
        """A run by its id; raises `SetupError` where there is none, `Refused` for other kinds."""
        if name in {folder.name for folder in self.runs.home.folders()}:
            return self._own(name)
        for _, (told, seed) in self._refinements():
            if name in (seed, Path(told.run).name):
                asking = Asking(told.folder, told.config, told.settings)
                return Seed(name, Path(told.run), False, asking)
        for experiment in all_experiments(self.runs.home.path / "experiments"):
            for path in (experiment.folder / "tasks").rglob(COMPLETION):
                told = read_object(path) or {}
                if name in (path.parent.name, told.get("run_id")):
                    return Seed(name, path.parent, False, Asking())
        raise SetupError(f"there is no run `{name}` here", hint="the list of runs has them all")

    def _own(self, name: str) -> Seed:
        told = self.runs.glance(name)
        begun = told.begun
        if begun.recipe == AGENT_RUN:
            asked = cast("Mapping[str, Any]", begun.facts.get(AGENT_RUN) or {})
            settings = tuple(map(str, asked.get("settings") or ()))
            config = asked.get("config")
            asking = Asking(str(asked.get("folder") or ""), config and str(config), settings)
            return Seed(name, told.folder.resolve(), True, asking)
        if begun.recipe == REFINE:
            asked = Refinement.of(begun.facts[REFINE])
            with Run(told.folder, told) as run:
                folder = run.moved(Path(asked.run))
            known = {one.resolve(): one.name for one in self.runs.home.folders()}
            if folder.resolve() in known:
                return self._own(known[folder.resolve()])
            asking = Asking(asked.folder, asked.config, asked.settings)
            return Seed(told.fact("seed_run") or folder.name, folder, False, asking)
        raise Refused(
            409,
            f"run {name} is none of an agent: it left no deliverable that could be refined",
            hint="`kept agent run` makes such runs; `kept refine` takes those of others too",
        )

    def obstacle(self, seed: Seed) -> str:
        """Why a run cannot be refined, in words; empty where it can."""
        if self.runs.home.index is None:
            return "it lies by itself, and `kept refine` takes its folder"
        if not seed.ours:
            return _obstacle_elsewhere(seed.folder)
        with Run(seed.folder) as run:
            record = agent_run_of(run)
            left = bool(delivered_by(run))
        if record is None:
            return "it never began"
        if record.status == "running":
            return "it has not ended yet"
        if record.status not in ENDED:
            go_on = f": `kept resume {seed.id}` goes on" if record.status == "aborted" else ""
            return f"it ended {record.status}{go_on}"
        return "" if left else "it left no deliverable to start from"

    def finished(self, seed: Seed) -> FinishedRun | None:
        """The run as its files tell it; None where they do not."""
        try:
            return read_run(seed.folder)
        except SetupError:
            return None

    def refinements(self, seed: Seed) -> list[Refining]:
        """Those of a run, the newest first."""
        return [
            Refining(folder.name, folder, begun.asked.session)
            for folder, begun in self._refinements()
            if _same(Path(begun.asked.run), seed.folder)
        ]

    def all_refinements(self) -> list[Refining]:
        """Those of the home, the newest first."""
        return [
            Refining(folder.name, folder, begun.asked.session, _session_file(begun.asked))
            for folder, begun in self._refinements()
        ]

    def _refinements(self) -> Iterator[tuple[Path, _Begun]]:
        """All of the home, the newest first; of each run only its first line, and that once."""
        for folder in reversed(self.runs.home.folders()):
            if folder.name not in self._known:
                started = _started(folder)
                if started is None:
                    continue  # it has not begun yet
                self._known[folder.name] = _begun(started)
            begun = self._known[folder.name]
            if begun is not None:
                yield folder, begun


def _started(folder: Path) -> RunStarted | None:
    with (folder / "journal.jsonl").open("rb") as file:
        line = file.readline()
    try:
        event = event_of(line, 0) if line.endswith(b"\n") else None
    except ValueError:
        return None
    return event if isinstance(event, RunStarted) else None


def _begun(started: RunStarted) -> _Begun | None:
    if started.recipe != REFINE:
        return None
    try:
        asked = Refinement.of(started.facts.get(REFINE))
    except (TypeError, KeyError, ValueError):
        return None  # of a version that wrote something else
    return _Begun(asked, str(started.facts.get("seed_run", "")))


def _session_file(asked: Refinement) -> Path | None:
    if not asked.target:
        return Path(asked.run) / SESSIONS / f"{asked.session}.json"
    try:
        return sessions_of(asked.task) / f"{asked.session}.json"
    except SetupError:
        return None  # the experiment was deleted


def _same(one: Path, other: Path) -> bool:
    return one == other or one.resolve() == other.resolve()


def _obstacle_elsewhere(folder: Path) -> str:
    try:
        run = read_run(folder)
    except SetupError as error:
        return error.message
    if run.status not in ENDED:
        return f"it ended {run.status or 'nowhere'}"
    return "" if deliverable(folder, run.run_id) else "it left no deliverable to start from"
