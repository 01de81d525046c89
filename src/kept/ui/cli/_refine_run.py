"""Session of a refinement in the terminal, from first line to result, and its summary."""

import sys
import time
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from kept.core.schedules.refine import Attempt, reruns, unpaid, unread
from kept.core.state import State
from kept.core.text import count
from kept.errors import SetupError
from kept.orchestrator.experiments import (
    EXPERIMENTS,
    SESSION,
    best_run,
    chosen,
    first_run,
    new_task_session,
    target_of,
)
from kept.orchestrator.refine.attempt import all_made, counted_words
from kept.orchestrator.refine.best import BEST, FOLLOW, Held, winning_run
from kept.orchestrator.refine.session import (
    SESSIONS,
    Told,
    free_name,
    refining,
    session_name,
    stop_name,
)
from kept.orchestrator.run_folder.read import COMPLETION
from kept.orchestrator.run_folder.write import Layout, write_run
from kept.orchestrator.workers import Stop
from kept.recipes.agent_run.compile import Watched
from kept.recipes.agent_run.journal_view import agent_run_of, delivered_by
from kept.recipes.agent_run.request import Asked
from kept.recipes.refine.compile import compile_refine
from kept.recipes.refine.request import (
    MAX_USD,
    Refinement,
    RefinementFacts,
    changed_files,
    with_more,
)
from kept.recipes.refine.request import REFINEMENTS as SESSIONS_BELOW
from kept.recipes.registry import facts_of, request_of
from kept.run import Ended, asked_for
from kept.store.candidate_files import make_folder
from kept.store.home import Home
from kept.store.reader import Run
from kept.store.run_index import RunIndex
from kept.ui.cli import _output
from kept.ui.cli._command import NO_GAIN, command_for, path_from_here
from kept.ui.cli._open_run import iteration_named
from kept.ui.cli._progress import PlainProgress, Progress
from kept.ui.cli._run import Session, run_session, told_warnings

UNMEASURED = "not measured: each loss is of one run; `--gate race` measures it"
UNREAD = "not measured: no deliverable was read twice"


def told_of(run: Run, state: State) -> Told:
    """Attempts of a refinement, from a state of its run."""
    return Told(state, all_made(run.candidate(state.seed), reruns(state)))


def refined_of(run: Run) -> "Refined | None":
    """Refinement of a run; None for other runs, and if its task was deleted."""
    asked = request_of(run, Refinement)
    if asked is None:
        return None
    try:
        asked.refined  # noqa: B018 # raises where its experiment was deleted
    except SetupError:
        return None
    return Refined(told_of(run, run.state), asked, run.folder)


@dataclass(frozen=True, slots=True)
class Refined:
    """Result of a refinement."""

    told: Told
    asked: Refinement
    folder: Path
    """Folder of the refinement's run."""

    @property
    def attempts(self) -> list[Attempt]:
        """Attempts that ran."""
        return self.told.attempts

    @property
    def unread(self) -> list[int]:
        """Attempts that ran but were not judged."""
        return [*unread(reruns(self.told.state)), *unpaid(self.told.state)]

    def document(self) -> dict[str, Any]:
        """Result as a JSON document."""
        told, state = self.told, self.told.state
        seed, best = told.parts(state.seed), told.parts(told.best_id)
        stopped = state.stopped
        return {
            "seed_loss": seed["total"],
            "seed_loss_breakdown": dict(seed),
            "started_from": "BEST" if self.asked.start else "seed",
            "start_run_id": told.made[state.seed].run_id,
            "best_loss": best["total"],
            "best_iter": told.best_iter,
            "stop_reason": stop_name(stopped.kind, stopped.message) if stopped else "",
            "iterations": [{"k": a.k, "run_id": a.run_id, "loss": a.loss} for a in told.attempts],
            "unread": self.unread,
            "gate": "race" if told.raced else "follow",
            "measure": told.measure,
            "noise": asdict(told.noise) if told.noise else None,
            "findings": [one.document() for one in told.ledger],
            **self._places(),
        }

    def text(self) -> str:
        """Result as text."""
        if self.told.state.stopped and self._stop == "empty_gradient":
            where = " in BEST" if self.asked.start else ""
            return f"nothing to refine{where}: no defects, no refusals, no metric that falls short"
        return f"{_output.style(self.title, bold=True)}\n\n{_output.pairs(self.rows())}"

    @property
    def title(self) -> str:
        """Result in one line."""
        told, k = self.told, self.told.best_iter
        seed, best = (told.parts(id_)["total"] for id_ in (told.state.seed, told.best_id))
        so_far = "" if told.state.stopped else "so far, "
        if k:
            by = ", each the mean of its readings" if told.raced else ""
            return f"{so_far}better: loss {best:.4f} (iteration {k}), down from {seed:.4f}{by}"
        if not told.attempts:
            return f"{so_far}no attempt came to its end: {self._whose} loss of {seed:.4f} stands"
        if told.raced:
            words = f"nothing was shown to be better than {self._whose} loss of {seed:.4f}"
        else:
            words = f"{self._whose} loss of {seed:.4f} is still the least"
        return f"{so_far}no gain: {words}"

    @property
    def _whose(self) -> str:
        return "BEST's" if self.asked.start else "the seed's"

    @property
    def moved(self) -> bool:
        """True if BEST holds a deliverable of this session."""
        held = self.asked.shelf.holds()
        return self.told.best_iter > 0 and held is not None and held.run_id == self.told.best.run_id

    @property
    def unmoved(self) -> str:
        """Sentence with the reason why BEST did not change."""
        left = self._places()["best_left"]
        if left is not None:
            return f"BEST did not move: {left}"
        return f"BEST did not move: {self.title.removeprefix('no gain: ')}"

    def rows(self) -> list[tuple[str, str]]:
        """Rows of labels and values below the title."""
        told, asked, places = self.told, self.asked, self._places()
        name = "BEST" if asked.start else "seed"
        rows = [(name, f"{_parts(told.parts(told.state.seed))}{_by(told)}"), *self._attempts()]
        if self.unread:
            which = ", ".join(map(str, self.unread))
            short = "the money for readings is used up" if unpaid(told.state) else ""
            rows.append(("not judged", f"attempt {which}: {short or 'the readings had no answer'}"))
        rows += [("go on", self._more)] if self._more else []
        unmeasured = UNREAD if told.raced else UNMEASURED
        rows.append(("noise", told.noise.words if told.noise else unmeasured))
        rows += [("stopped", _stopped(self._stop, told.state))] if self._stop else []
        if places["best"] is not None:
            rows.append(("best", path_from_here(places["best"])))
        if places["best_left"] is not None:
            rows.append(("", f"BEST is left as it is: {places['best_left']}"))
        if asked.target and told.best_iter and chosen(asked.task):
            choose = f"`kept experiment task set-best {asked.target} --auto` has the loss choose"
            rows.append(("", choose))
        rows.append(("session", path_from_here(str(places["session"]))))
        return [*rows, ("iterations", path_from_here(asked.root))]

    @property
    def measure(self) -> str:
        """Kind of its losses, in words."""
        if self.told.measure == FOLLOW:
            return f"loss of one run each (`{FOLLOW}`)"
        return f"mean loss of readings (`{self.told.measure}`)"

    @property
    def _stop(self) -> str:
        stopped = self.told.state.stopped
        return stop_name(stopped.kind, stopped.message) if stopped else ""

    @property
    def _more(self) -> str:
        """Command that resumes with twice the USD for readings, if these ran out."""
        state, usd = self.told.state, self.told.state.settings.budget.max_rollouts_usd
        if not usd or not state.stopped or state.stopped.kind != "usd":
            return ""
        return command_for("resume", self.folder, (f"{MAX_USD}={2 * usd:.10g}",))

    def _attempts(self) -> list[tuple[str, str]]:
        told, rows = self.told, list[tuple[str, str]]()
        verdicts = {step.step: step.verdict for step in reruns(told.state)}
        for one in told.attempts:
            status = f"{one.status}, by its own run" if told.raced else one.status
            rows.append((f"attempt {one.k}", f"{_parts(one.loss_breakdown)} ({status})"))
            rows.append(("", counted_words(told.ledger, one.k)))
            verdict = verdicts[one.step]
            if told.raced or verdict.outcome not in ("keep", "discard"):
                rows.append(("", verdict.reason))
        return rows

    def _places(self) -> dict[str, str | None]:
        """Paths of the best and of the session, and the reason if BEST does not hold the best."""
        told, asked = self.told, self.asked
        if asked.target:
            place, session = asked.task.best, asked.root / SESSION
        else:
            place = Path(asked.run) / BEST
            session = Path(asked.run) / SESSIONS / f"{asked.session}.json"
        held = asked.shelf.holds()
        best, left = (None if held is None else place), None
        if told.best_iter and (held is None or held.run_id != told.best.run_id):
            best = asked.root / f"iter_{told.best_iter}" / "output" / told.best.run_id
            left = "it could not be written" if held is None else self._stays(held)
            if asked.target and chosen(asked.task):
                left = "a person chose what it holds"
        return {"best": str(best) if best else None, "best_left": left, "session": str(session)}

    def _stays(self, held: Held) -> str:
        told = self.told
        if not told.final and held.beaten_by(told.parts(told.best_id)["total"], told.measure):
            return f"it holds run {held.run_id} until this race has come to its end"
        return held.stays(told.measure)


def _stopped(reason: str, state: State) -> str:
    """Reason to stop in the source's terms; an error's text is shown elsewhere."""
    if state.stopped is not None and state.stopped.kind == "usd":
        return f"{reason}: of `budget.max_usd`, {state.stopped.message}"
    return "after an error" if reason.startswith("error:") else reason


def _by(told: Told) -> str:
    """Origin of the seed's loss; empty unless a race has several kinds of losses."""
    if not told.raced:
        return ""
    read = told.readings(told.state.seed)
    words = f"mean of {count(read.count, 'reading')}" if read else "by its own run"
    return f" ({words})"


def _parts(parts: Mapping[str, float]) -> str:
    shown = " + ".join(f"{name} {value:.4f}" for name, value in parts.items() if name != "total")
    return f"{parts['total']:.4f} = {shown}"


class Seed(NamedTuple):
    """Run to refine, and the name of the session."""

    folder: Path
    session: str
    target: str = ""
    start: str = ""
    """Run whose deliverable BEST holds; empty to start from the seed itself."""


def named(run_dir: str | None, target: str | None, *, from_seed: bool = False) -> Seed:
    """Run by its name, or the best run of a task; with `from_seed` the task's first run."""
    if (run_dir is None) == (target is None):
        raise SetupError(
            "name a run, or a task", hint="`kept refine RUN_DIR`, or --target EXP:TASK"
        )
    if run_dir is not None:
        folder = seed_folder(run_dir)
        start = None if from_seed else _held_by_best(folder)
        # a session name that is free for this run and beside it: two may begin in the same second
        home = Home.find(Path.cwd()).path / SESSIONS_BELOW
        taken = {path.stem for path in (folder / SESSIONS).glob("*.json")}
        session = free_name(session_name(time.time()), taken, home)
        return Seed(folder, session, start=str(start or ""))
    _, task = target_of(Home.find(Path.cwd()).path / EXPERIMENTS, target or "")
    folder = seed_folder(str(first_run(task) if from_seed else best_run(task)))
    return Seed(folder, new_task_session(task, time.time()), task.target)


def _held_by_best(seed: Path) -> Path | None:
    """Run behind BEST of a seed; None without BEST, or if that run was deleted."""
    run = winning_run(seed)
    if run is None or (run / COMPLETION).exists():
        return run
    where = path_from_here(str(run))
    _output.note(f"warning: the run that BEST is from is gone ({where}): the seed run is refined")
    return None


def refine_folder(folder: Path, settings: tuple[str, ...], *, as_json: bool, quiet: bool) -> int:
    """Refine the run in a folder, as `kept refine` does; return the exit code."""
    seed = named(str(folder), None)
    run, here = str(seed.folder), str(Path.cwd())
    asked = Refinement(
        run=run, folder=here, session=seed.session, settings=settings, start=seed.start
    )
    return start_refine(asked, as_json=as_json, quiet=quiet)


def seed_folder(name: str) -> Path:
    """Folder of a run by its name; a run of ours is exported in the source's layout first."""
    folder = Path(name)
    if folder.is_dir() and not (folder / "journal.jsonl").exists():
        return _whole(folder.resolve())
    if not folder.is_dir():
        if (iteration := iteration_named(name)) is not None:
            return _whole(Path(iteration.folder).resolve())
        folder = Home.find(Path.cwd()).find_run(name, asked_for(Asked))
    lay_out(folder)
    return folder.resolve()


def _whole(folder: Path) -> Path:
    """Folder without a journal; refused if its files differ from the journal of its refinement."""
    home = Home.find(folder)
    if not folder.is_relative_to(home.path.resolve()):
        return folder
    rows = (row for row in RunIndex(home).with_iterations() if row.refinement)
    row = next((row for row in rows if Path(row.folder).resolve() == folder), None)
    if row is None:
        return folder
    with Run(home.runs / row.refinement) as run:
        changed = sorted(changed_files(run, folder.parents[2]))
    if changed:
        raise SetupError(
            f"{changed[0]} is not what the journal of run {row.refinement} says",
            hint=f"`kept doctor {row.refinement} --repair` writes it again; "
            "what was changed on purpose can be refined in a copy of the folder",
        )
    return folder


def lay_out(folder: Path) -> None:
    """Write the files of our own agent run in the source's layout."""
    run = Run(folder)
    try:
        record = agent_run_of(run) if request_of(run, Asked) else None
        if record is not None:
            write_run(folder, record, delivered_by(run), Layout())
    finally:
        run.close()


def start_refine(asked: Refinement, *, as_json: bool, quiet: bool) -> int:
    """Refine a run in a new folder; return the exit code."""
    home = Home.find(Path(asked.folder))
    session = RefineSession(asked, _new_session(asked), as_json=as_json, quiet=quiet)
    plan = told_warnings(compile_refine(asked, session.watched))
    home.make()
    return run_session(plan, home, session)


@contextmanager
def _new_session(asked: Refinement) -> Generator[None]:
    """Lock of a new session; creates its folder at once to reserve its name."""
    with refining(asked.refined, asked.session):
        make_folder(asked.root)
        yield


def resume_refine(run: Run, settings: tuple[str, ...], *, as_json: bool, quiet: bool) -> int:
    """Resume a refinement, optionally with more USD for readings; return the exit code."""
    before, facts = request_of(run, Refinement), facts_of(run, RefinementFacts)
    assert before is not None and facts is not None, "a refinement"
    asked = with_more(before, settings, run.settings.budget.max_rollouts_usd)
    run.close()
    lock = refining(asked.refined, asked.session)
    session = RefineSession(asked, lock, as_json=as_json, quiet=quiet)
    plan = told_warnings(compile_refine(asked, session.watched, facts.artifacts))
    return run_session(plan, run.folder, session)


class RefineSession(Session):
    """Session of a refinement, shown attempt by attempt."""

    def __init__(
        self,
        asked: Refinement,
        lock: AbstractContextManager[object],
        *,
        as_json: bool,
        quiet: bool,
    ) -> None:
        stop = Stop()
        progress = Progress() if quiet else PlainProgress(sys.stderr)
        super().__init__(progress, stop=stop, lock=lock)
        self.watched = Watched(say=progress.say, stop=stop)
        self._asked = asked
        self._as_json = as_json

    def answer(self, ended: Ended) -> None:
        """Print the attempts and the path of the best."""
        state = ended.state
        with Run(ended.folder) as run:
            self._refined = refined = Refined(told_of(run, state), self._asked, ended.folder)
        if self._as_json:
            stopped = state.stopped
            ok = not (stopped and stopped.kind == "error")
            _output.document({"ok": ok, **refined.document(), "folder": str(ended.folder)})
        else:
            _output.answer(refined.text())

    def error_words(self, message: str) -> str:
        """Error text without the prefix that the source puts before it."""
        return message.removeprefix("error:")

    def finish(self) -> int:
        """Exit code: 0 if BEST changed or there was nothing to refine, else 1."""
        stopped = self._refined.told.state.stopped
        nothing = stopped is not None and stopped.message.startswith("empty_gradient:")
        if nothing or self._refined.moved:
            return 0
        _output.note(self._refined.unmoved)
        return NO_GAIN
