"""Runs that can be refined, with their files, refinement sessions and BEST.

A run is looked up by its exact id among those of this home: its own, refined ones, and those of
its experiments. Request data never becomes part of a path.

Sessions are read from files, ours or those of the source. A broken file counts as absent, and
keys that older versions did not write may be missing.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple, cast

from kept.core.event import RunStarted
from kept.errors import JournalError, SetupError
from kept.orchestrator.experiments import EXPERIMENTS, Task, all_experiments, read_task, sessions_of
from kept.orchestrator.loss import first_number
from kept.orchestrator.refine.best import BEST, MANIFEST, MANIFEST_ASIDE, manifest_in
from kept.orchestrator.refine.session import SESSIONS
from kept.orchestrator.run_folder.read import (
    COMPLETION,
    FinishedRun,
    Row,
    deliverable,
    files_below,
    part,
    read_object,
    read_run,
    rows_in,
    text_in,
)
from kept.recipes.agent_run.journal_view import agent_run_of, delivered_by
from kept.recipes.agent_run.request import Asked
from kept.recipes.refine.request import Refinement, RefinementFacts
from kept.recipes.registry import facts_in, facts_of, request_in, request_of
from kept.store.home import Home
from kept.store.jsonl import event_of
from kept.store.lock import holder
from kept.store.reader import Run
from kept.ui.web.auth import Refused
from kept.ui.web.run_source import Runs

ENDED = ("complete", "partial")
"""Statuses of runs that left a deliverable to start from."""


@dataclass(frozen=True, slots=True)
class Asking:
    """Settings of a run that its refinement takes over."""

    folder: str = ""
    config: str | None = None
    settings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Seed:
    """A run that may be refined."""

    id: str
    """Id as in addresses."""
    folder: Path
    """Folder of its files."""
    ours: bool
    """True if it is a run of this home."""
    asking: Asking


@dataclass(frozen=True, slots=True)
class Refining:
    """A refinement in this home."""

    run: str
    folder: Path
    session: str
    file: Path | None = None
    """File of its session; None if its experiment was deleted."""

    @property
    def pid(self) -> int | None:
        """Id of the process that is writing it; None if there is none."""
        return holder(self.folder)


class _Begun(NamedTuple):
    """Settings that a refinement began with."""

    asked: Refinement
    seed_run: str


class Seeds:
    """The runs of a home that can be refined."""

    def __init__(self, runs: Runs) -> None:
        self.runs = runs
        self._known: dict[str, _Begun | None] = {}
        """Start of each refinement, by run; None for runs of other kinds."""

    def find(self, name: str) -> Seed:
        """Find a run by its id; raises `SetupError` if it is unknown, `Refused` for other kinds."""
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
        task = request_of(told, Asked)
        if task is not None:
            asking = Asking(task.folder, task.config, task.settings)
            return Seed(name, told.folder.resolve(), True, asking)
        asked, facts = request_of(told, Refinement), facts_of(told, RefinementFacts)
        if asked is not None and facts is not None:
            with Run(told.folder, told) as run:
                folder = run.moved(Path(asked.run))
            known = {one.resolve(): one.name for one in self.runs.home.folders()}
            if folder.resolve() in known:
                return self._own(known[folder.resolve()])
            asking = Asking(asked.folder, asked.config, asked.settings)
            return Seed(facts.seed_run or folder.name, folder, False, asking)
        raise Refused(
            409,
            f"run {name} is none of an agent: it left no deliverable that could be refined",
            hint="`kept agent run` makes such runs; `kept refine` takes those of others too",
        )

    def obstacle(self, seed: Seed) -> str:
        """Reason why a run cannot be refined; empty if it can."""
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
        """The run as read from its files; None if they are unreadable."""
        try:
            return read_run(seed.folder)
        except SetupError:
            return None

    def refinements(self, seed: Seed) -> list[Refining]:
        """Refinements of a run, newest first."""
        return [
            Refining(folder.name, folder, begun.asked.session)
            for folder, begun in self._refinements()
            if (run := Path(begun.asked.run)) == seed.folder
            or run.resolve() == seed.folder.resolve()
        ]

    def all_refinements(self) -> list[Refining]:
        """Refinements of the home, newest first."""
        return [
            Refining(folder.name, folder, begun.asked.session, _session_file(begun.asked))
            for folder, begun in self._refinements()
        ]

    def _refinements(self) -> Iterator[tuple[Path, _Begun]]:
        """Refinements of the home, newest first; reads the first line of each journal once."""
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
    try:
        asked, facts = request_in(started, Refinement), facts_in(started, RefinementFacts)
    except JournalError:
        return None  # written by a version with other fields
    return None if asked is None or facts is None else _Begun(asked, facts.seed_run)


def _session_file(asked: Refinement) -> Path | None:
    if not asked.target:
        return Path(asked.run) / SESSIONS / f"{asked.session}.json"
    try:
        return sessions_of(asked.task) / f"{asked.session}.json"
    except SetupError:
        return None  # the experiment was deleted


def _obstacle_elsewhere(folder: Path) -> str:
    try:
        run = read_run(folder)
    except SetupError as error:
        return error.message
    if run.status not in ENDED:
        return f"it ended {run.status or 'nowhere'}"
    return "" if deliverable(folder, run.run_id) else "it left no deliverable to start from"


MOST = 200
"""Maximum number of sessions shown."""
LARGEST = 4_000_000
"""Maximum bytes of a session's file."""
DEEPEST = 20
"""Maximum nesting levels of a session's file."""

STOPS = {
    "max_iterations": "all its iterations are done",
    "regression": "worse than the one before, twice in a row",
    "plateau": "it no longer moves",
    "wall_time_exhausted": "twice the time of the seed run is used",
    "empty_gradient": "nothing to refine",
    "empty_gradient_midloop": "nothing is wrong any more",
    "no_prior_deliverable": "no deliverable was left to go on from",
    "interrupted": "it was interrupted",
}


@dataclass(frozen=True, slots=True)
class Tried:
    """One iteration."""

    k: str
    run: str
    loss: float | None
    status: str
    tier: str
    manager: str
    worker: str
    parts: Mapping[str, float]
    best: bool
    read: float | None
    """Mean of its readings; None without a race, or if all readings failed."""
    step: int | None
    """Step of the refinement, if that is a run of this home."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A session in display form."""

    id: str
    started: str
    completed: str
    state: str
    """`running`, `finished`, `interrupted` or `crashed`."""
    stop: str
    why: str
    best: int
    seed_loss: float | None
    tiered: bool
    raced: bool
    """True if readings decided, and not the loss of each run."""
    tried: tuple[Tried, ...]
    run: str
    """Refinement that the session belongs to; empty if it is of another home."""
    start_run: str = ""
    """Run that it started from."""
    start_loss: float | None = None
    from_best: bool = False
    """True if that run was the one in BEST."""
    task: str = ""
    """Task that it belongs to; empty for none."""

    @property
    def best_loss(self) -> float | None:
        """Loss of its best iteration; None while the seed is the best."""
        best = next((one for one in self.tried if one.best), None)
        return None if best is None else best.read if self.raced else best.loss

    @property
    def named(self) -> bool:
        """True if models or tiers are recorded."""
        return any(one.tier or one.manager or one.worker for one in self.tried)


class Document(NamedTuple):
    """A session as read from its file."""

    path: Path
    told: Row
    task: Task | None = None
    """Task of an experiment that it belongs to."""


def documents(seed: Seed, home: Home) -> list[Document]:
    """Read the session files of a run, newest first.

    Includes those of tasks that started from it, or from a run that such a session made.
    """
    own = documents_in(seed.folder / SESSIONS)
    told = read_object(seed.folder / COMPLETION) or {}
    ids = {seed.id, seed.folder.name, text_in(told.get("run_id"))} - {""}
    of_tasks = [one for task in tasks_of(home) for one in _of_task(task, ids)]
    found = [*own, *of_tasks]
    # sessions that began in the same second are ordered by name
    return sorted(
        found,
        key=lambda one: (text_in(one.told.get("started_at")), text_in(one.told.get("session_id"))),
        reverse=True,
    )[:MOST]


def documents_in(place: Path, pattern: str = "*.json", task: Task | None = None) -> list[Document]:
    """Sessions in one folder, newest first."""
    paths = sorted(place.glob(pattern), reverse=True) if place.is_dir() else []
    usable = [one for one in paths if not one.is_symlink() and one.stat().st_size <= LARGEST]
    found = [(path, read_object(path)) for path in usable[:MOST]]
    return [
        Document(path, {"session_id": path.stem, **_plain(told)}, task)
        for path, told in found
        if told is not None
    ]


def task_documents(task: Task) -> list[Document]:
    """Sessions of a task, newest first."""
    return documents_in(sessions_of(task), "session_*.json", task)


def tasks_of(home: Home) -> list[Task]:
    """Every readable task."""
    found: list[Task] = []
    for experiment in all_experiments(home.path / EXPERIMENTS):
        for folder in sorted((experiment.folder / "tasks").glob("*/")):
            with suppress(SetupError, ValueError, TypeError):
                found.append(read_task(folder))
    return found


def _of_task(task: Task, ids: Collection[str]) -> Iterator[Document]:
    """Sessions of a task that started from one of these runs, or from a run of such a session."""
    known = set(ids)
    # oldest first, so that runs of earlier sessions are known when later ones are checked
    for one in reversed(task_documents(task)):
        if text_in(one.told.get("seed_run_id")) in known:
            known |= {text_in(row.get("run_id")) for row in rows_in(one.told.get("iterations"))}
            yield one


def attempt_steps(found: Iterable[Document], of: Sequence[Refining]) -> dict[str, tuple[str, int]]:
    """Refinement and step of each attempt, by run id."""
    steps: dict[str, tuple[str, int]] = {}
    for one in found:
        mine = _refinement_of(one, of)
        for row in shown(one, of).tried if mine is not None else ():
            if mine is not None and row.step is not None:
                steps[row.run] = (mine.run, row.step)
    return steps


def _refinement_of(one: Document, of: Sequence[Refining]) -> Refining | None:
    """Refinement that a session belongs to, if it is a run of this home."""
    id_ = text_in(one.told.get("session_id"))
    for each in of:
        file = each.file
        # if the project was moved, the recorded file is missing and the name alone decides
        if each.session == id_ and (
            file is None or file.resolve() == one.path.resolve() or not file.exists()
        ):
            return each
    return None


def task_best_manifest(found: Sequence[Document]) -> Row | None:
    """Manifest of a task's best, for the task of these sessions, with the keys of a run's BEST."""
    task = next((one.task for one in found if one.task is not None), None)
    told = read_object(task.best / MANIFEST) if task is not None else None
    if told is None or "winner_run_id" not in told:
        return None
    return _plain({**told, "best_run_id": told["winner_run_id"], "best_loss": told.get("loss")})


def best_manifest(folder: Path) -> Row | None:
    """Manifest of BEST in plain JSON; None if there is none."""
    told = manifest_in(folder)
    return None if told is None else _plain(dict(told))


def _plain(value: Any, depth: int = DEEPEST) -> Any:  # noqa: ANN401 # whatever JSON holds
    """Value in plain JSON: infinity and deep nesting become None.

    Python's JSON reader accepts infinity, but JSON cannot express it.
    """
    if isinstance(value, float) and not isfinite(value):
        return None
    if isinstance(value, list):
        rows = cast("list[object]", value)
        return [_plain(one, depth - 1) for one in rows] if depth else None
    if isinstance(value, dict):
        pairs = cast("dict[str, object]", value).items()
        return {key: _plain(one, depth - 1) for key, one in pairs} if depth else None
    return value


@dataclass(frozen=True, slots=True)
class BestShown:
    """Origin and quality of the best deliverable."""

    run: str
    session: str
    loss: float | None
    seed_loss: float | None
    files: tuple[str, ...]
    place: str
    """Folder of BEST."""


def best_shown(folder: Path, found: Sequence[Document] = ()) -> BestShown | None:
    """BEST in display form, of the run or of the task of its sessions; None if there is none."""
    told = best_manifest(folder)
    if told is None:
        told = task_best_manifest(found)
        folder = next((one.task.folder for one in found if one.task is not None), folder)
    if told is None:
        return None
    place = folder / BEST
    held = files_below(place) if place.is_dir() else {}
    return BestShown(
        text_in(told.get("best_run_id")),
        text_in(told.get("session_id")),
        first_number(told.get("best_loss")),
        first_number(told.get("seed_loss")),
        tuple(path for path in held if path not in (MANIFEST, MANIFEST_ASIDE)),
        str(place),
    )


def shown(one: Document, of: Sequence[Refining]) -> Shown:
    """A session in display form."""
    told = one.told
    id_ = text_in(told.get("session_id"))
    mine = _refinement_of(one, of)
    stop, completed = text_in(told.get("stop_reason")), text_in(told.get("completed_at"))
    best = int(first_number(told.get("best_iter")) or 0)
    rows = [_tried(row, best, mine is not None) for row in rows_in(told.get("iterations"))]
    return Shown(
        id_,
        text_in(told.get("started_at")),
        completed,
        _state(stop, completed, mine),
        stop,
        STOPS.get(stop, stop.removeprefix("error:").replace("_", " ")),
        best,
        first_number(told.get("seed_loss")),
        told.get("tier_plan_used") is True,
        text_in(told.get("gate")) == "race",
        tuple(rows),
        mine.run if mine else "",
        text_in(told.get("start_run_id")),
        first_number(told.get("start_loss"), told.get("seed_loss")),
        text_in(told.get("start_run_id")) not in ("", text_in(told.get("seed_run_id"))),
        one.task.target if one.task is not None else "",
    )


def _state(stop: str, completed: str, mine: Refining | None) -> str:
    if mine is not None and mine.pid is not None:
        return "running"
    if stop == "interrupted":
        return "interrupted"
    if stop.startswith("error"):
        return "crashed"
    return "finished" if completed else "crashed"


def _tried(row: Mapping[str, Any], best: int, ours: bool) -> Tried:
    k = first_number(row.get("k"))
    parts = {name: first_number(one) for name, one in part(row, "loss_breakdown").items()}
    step = first_number(row.get("step"))
    if step is None and k is not None:
        step = k - 1  # old sessions do not record the step; iterations ran in order
    return Tried(
        f"{k:g}" if k is not None else "?",
        text_in(row.get("run_id")),
        first_number(row.get("loss")),
        text_in(row.get("status")),
        text_in(row.get("tier")),
        text_in(row.get("model_manager")),
        text_in(row.get("model_worker")),
        {name: one for name, one in parts.items() if one is not None},
        k is not None and k == best,
        first_number(row.get("measured_loss")),
        int(step) if ours and step is not None and step >= 0 else None,
    )
