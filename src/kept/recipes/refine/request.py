"""`kept refine` request, the judging of its iterations, and its journal view.

By default (`follow`) the loss reported by a run decides, as in the source. In a race the
deliverable of an iteration is scored repeatedly beside the best so far. It is kept if the race
says so.

The view gives the iterations of a refinement and the files that it wrote.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple, cast

from kept.core.artifact import is_safe_path
from kept.core.budget import Budget
from kept.core.case import IMPLICIT_CASE, Case, Cases
from kept.core.event import RunStopped
from kept.core.objective import Objective
from kept.core.ports import Gate, Runner
from kept.core.proposal import proposal_scope
from kept.core.schedules.refine import Attempt, attempts, reruns
from kept.errors import SetupError
from kept.gates.race import PRESETS
from kept.gates.repeats import Repeats
from kept.gates.seed_rules import Follow
from kept.orchestrator.events import STORY, Moment, record_of
from kept.orchestrator.experiments import EXPERIMENTS, SESSION, InTask, Task, sessions_of, target_of
from kept.orchestrator.record import AgentRun
from kept.orchestrator.refine.attempt import LOSS, Made, MadeRunner, all_made
from kept.orchestrator.refine.best import BEST, FOLLOW, best_files, manifest_name
from kept.orchestrator.refine.proposer import RUN, Iterating, ModelPair, Tiers, brief_text, broke_by
from kept.orchestrator.refine.rescore import CRITERION, Reading
from kept.orchestrator.refine.session import (
    GRADIENT,
    SESSIONS,
    BesideSeed,
    SessionPlace,
    Shelf,
    Told,
    gradient_of,
    layout_of,
    session_bytes,
    session_of,
    winner_of,
)
from kept.orchestrator.run_folder.read import read_run
from kept.orchestrator.run_folder.write import run_files
from kept.orchestrator.runner import DELIVERED
from kept.recipes.agent_run.spec import AgentRunSpec
from kept.recipes.base import Facts, Request
from kept.recipes.race_choice import MIN_RACE_CASES
from kept.recipes.registry import facts_of, request_of
from kept.recipes.task.cases import read_cases
from kept.recipes.task.make_coding_agent import hash_of
from kept.spec.source import source_of
from kept.spec.validate import validate
from kept.store.home import Home
from kept.store.reader import Run

REFINEMENTS = "refinements"
"""Folder of the Kept home that holds iterations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refinement(Request):
    """Request of a refinement, as stored for a resume."""

    run: str
    """Folder of the seed run."""
    folder: str
    """Folder that paths are relative to."""
    session: str
    target: str = ""
    """Task of an experiment that it belongs to, `EXP:TASK`; empty for none."""
    iterations: int = 3
    model: str = ""
    worker_model: str = ""
    low: ModelPair = ModelPair()  # noqa: RUF009 # a tuple of two texts
    mid: ModelPair = ModelPair()  # noqa: RUF009 # as above
    high: ModelPair = ModelPair()  # noqa: RUF009 # as above
    from_last: bool = False
    gate: str = "follow"
    repeats: int = 40
    """Maximum number of readings of each side, without cases."""
    cases: str | None = None
    """File of criteria for deliverables."""
    config: str | None = None
    settings: tuple[str, ...] = ()
    readings_usd: float | None = field(default=None, repr=False)
    """Cost limit of all readings, as raised by a resume; not part of the request's identity."""
    start: str = field(default="", repr=False)
    """Folder of the run to start from, which BEST held; empty for the seed run.

    A resume identifies it by its deliverable.
    """

    @property
    def tiers(self) -> Tiers:
        """Model pairs of the tiers."""
        return Tiers(self.low, self.mid, self.high)

    @property
    def root(self) -> Path:
        """Folder of its iterations."""
        if self.target:
            return sessions_of(self.task) / self.session
        return Home.find(Path(self.folder)).path / REFINEMENTS / self.session

    @property
    def task(self) -> Task:
        """Task that it belongs to; only valid with a target."""
        experiments = Home.find(Path(self.folder)).path / EXPERIMENTS
        return target_of(experiments, self.target)[1]

    @property
    def refined(self) -> tuple[Path, ...]:
        """Folders locked against other sessions: the run, and its task."""
        return (Path(self.run), *((self.task.folder,) if self.target else ()))

    @property
    def shelf(self) -> Shelf:
        """Place of its results: the task, or beside the seed run."""
        return InTask(self.task, Path(self.run)) if self.target else BesideSeed(Path(self.run))


@dataclass(frozen=True, slots=True, kw_only=True)
class RefinementFacts(Facts):
    """Facts of a refinement."""

    seed_run: str
    start_run: str
    iterations: str
    """Folder of its iterations."""
    artifacts: Mapping[str, str]
    """Prompt artifacts of its runs."""
    measure: str
    """Name of the loss; only losses of the same name are compared."""


RACE = "race"
MAX_USD = "budget.max_usd"


class Judging(NamedTuple):
    """Part of a plan that decides."""

    gate: Gate
    cases: Cases
    runner: Runner
    objective: Objective
    measure: str = FOLLOW
    """Name of the loss; only losses of the same name are compared."""
    budget: Budget = Budget()


def follows(task: str, close: Callable[[], None], *, from_last: bool) -> Judging:
    """Judge an iteration by the loss of its own run."""
    return Judging(
        # the incumbent is the start of the next iteration
        Follow(advances=from_last),
        Cases(holdout=(Case("task", {"task": task}),)),
        MadeRunner(close),
        Objective(LOSS, "minimize", (0.0, 1.0)),
    )


def races(asked: Refinement, reading: Reading) -> Judging:
    """Judge an iteration by readings of its deliverable, beside readings of the best so far."""
    # gains are small on the scale of a loss: the sign matters more than the size
    objective = Objective(LOSS, "minimize")
    if asked.cases is None:
        gate, cases = Repeats(most=asked.repeats), Cases(holdout=(IMPLICIT_CASE,))
    else:
        gate, cases = PRESETS["balanced"], criteria(asked)
    # all readings together may cost as much as one iteration
    usd = reading.kit.limits.usd if asked.readings_usd is None else asked.readings_usd
    budget = Budget(max_rollouts_usd=usd)
    # the name of the loss covers this critic and these criteria
    critic = reading.kit.models.critic or reading.kit.models.manager
    about = [[case.id, case.data] for case in cases.holdout]
    measure = f"{RACE}:{hash_of([critic, about])}"
    return Judging(gate, cases, reading, objective, measure, budget)


def with_more(asked: Refinement, settings: tuple[str, ...], before: float | None) -> Refinement:
    """Same refinement with the money for readings that a resume sets; `before` is the old limit.

    Iterations keep the limits that they began with, as their managers see them.
    """
    if not settings:
        return asked
    if before is None:
        hint = "it goes on as it began; `kept refine` begins another"
        raise SetupError(f"this refinement has no readings that `{MAX_USD}` limits", hint=hint)
    source = source_of(Path(asked.folder) / "(command line)", "{}", settings)
    spec = validate(source, AgentRunSpec)
    source.check()
    assert spec is not None, "a spec without problems is one"
    if spec.budget.max_usd is None:
        hint = "give what they may cost together, in US dollars"
        raise SetupError(f"`{MAX_USD}` of readings cannot be taken away", hint=hint)
    return replace(asked, readings_usd=spec.budget.max_usd)


def criteria(asked: Refinement) -> Cases:
    """Read the cases of a file: each is a criterion, and all of them decide."""
    settings = (f"cases.file={asked.cases}", "cases.split=0:1:0")
    source = source_of(Path(asked.folder) / "(command line)", "{}", settings)
    read = read_cases(source, lambda case: None if criterion_of(case) else _WORDS)
    source.check()
    found = [Case(case.id, criterion_of(case)) for case in (read.holdout if read else ())]
    if len(found) < MIN_RACE_CASES:
        raise SetupError(
            f"a race over criteria needs {MIN_RACE_CASES} of them or more, and `{asked.cases}` has "
            f"{len(found)}",
            hint="give more, or leave out --cases: then the whole deliverable is read repeatedly",
        )
    return Cases(holdout=tuple(found))


_WORDS = f"a case is a text, or has a `{CRITERION}`, perhaps an `id`, and nothing else"


def criterion_of(case: Case) -> str:
    """Criterion of a case; empty if it has none."""
    said = case.data
    if isinstance(said, dict):
        row = cast("dict[str, object]", said)
        said = row.get(CRITERION) if set(row) <= {"id", CRITERION} else None
    return said.strip() if isinstance(said, str) else ""


def iteration_of(run: Run, run_id: str) -> AgentRun | None:
    """Record of one iteration; None if the refinement has none of that id."""
    found = (one for one in attempts(reruns(run.state)) if one.run_id == run_id)
    attempt = next(found, None)
    if attempt is None:
        return None
    return record_of(run.replies(f"{_scope(attempt)}/{STORY}", Moment))


def _scope(attempt: Attempt) -> str:
    return f"{proposal_scope(attempt.step)}/{RUN}"


def changed_files(run: Run, below: Path | None = None) -> Mapping[Path, bytes]:
    """Files changed since the refinement wrote them, with their original content.

    `below` limits this to a folder. A removed file is not reported.
    """
    if request_of(run, Refinement) is None or run.status == "running":
        return {}
    within = below.resolve() if below is not None else None
    return {
        path: data
        for path, data in _files(run)
        if (within is None or path.resolve().is_relative_to(within))
        if path.is_file() and path.read_bytes() != data
    }


def _files(run: Run) -> Iterator[tuple[Path, bytes]]:
    """Every file as the journal has it, except files that another session may write."""
    facts = facts_of(run, RefinementFacts)
    assert facts is not None, "a refinement"
    made = all_made(run.seed, reruns(run.state))
    by_run = {one.run_id: one for one in made.values()}
    for attempt in attempts(reruns(run.state)):
        root = run.moved(Path(facts.iterations))
        for path, data in _iteration_files(run, attempt, by_run).items():
            yield root / f"iter_{attempt.k}" / path, data
    yield from _session_files(run, Told(run.state, made))


def _iteration_files(run: Run, attempt: Attempt, by_run: Mapping[str, Made]) -> Mapping[str, bytes]:
    record = iteration_of(run, attempt.run_id)
    if record is None:
        return {}
    ran = [one.files for _, one in run.executions([f"{_scope(attempt)}/{DELIVERED}"])]
    files = run_files(record, ran[-1] if ran else {}, layout_of(record.run_id))
    start = by_run.get(attempt.parent_run_id)
    if start is not None:
        files |= {f"input/{path}": data for path, data in start.files.items() if is_safe_path(path)}
        files[GRADIENT] = gradient_of(_about(run, attempt, start))
    return files


def _about(run: Run, attempt: Attempt, start: Made) -> Iterating:
    """Inputs of an iteration at its start."""
    before = [step for step in run.state.history if step.step < attempt.step]
    *_, last = all_made(run.seed, before).values()
    broke = broke_by(start, last, before)
    prefix = brief_text(start.findings, broke)
    return Iterating(k=attempt.k, run_id=attempt.run_id, start=start, brief=prefix, broke=broke)


def _session_files(run: Run, told: Told) -> Iterator[tuple[Path, bytes]]:
    asked, facts = request_of(run, Refinement), facts_of(run, RefinementFacts)
    assert asked is not None and facts is not None, "a refinement"
    seed = run.moved(Path(asked.run))
    place = SessionPlace(
        shelf=asked.shelf,
        root=Path(facts.iterations),
        session_id=asked.session,
        seed_run_id=facts.seed_run,
        start_run_id=facts.start_run,
        tiers=not asked.tiers.trivial,
    )
    if asked.start:
        place = replace(place, seed_loss=read_run(seed).loss.total)
    # rebuild the session file as it was written, with the end of the run
    ended = run.events[-1].t if isinstance(run.events[-1], RunStopped) else None
    session = session_bytes(session_of(place, told, ended))
    if asked.target:
        folder = sessions_of(asked.task)
        yield folder / asked.session / SESSION, session
        yield folder / f"{asked.session}.json", session
    else:
        yield seed / SESSIONS / f"{asked.session}.json", session
    if told.best_iter and not asked.target:
        best = best_files(winner_of(place, told), told.best.files)
        name = manifest_name(told.best.files)
        if _is_ours(seed / BEST, name, best, (asked.session, told.best.run_id)):
            yield from ((seed / BEST / path, data) for path, data in best.items())


def _is_ours(place: Path, name: str, best: Mapping[str, bytes], names: Sequence[str]) -> bool:
    """True if BEST is of this session, even if one of its files is damaged."""
    held = {path: (place / path).read_bytes() for path in best if (place / path).is_file()}
    told = held.pop(name, b"")
    files = {path: data for path, data in best.items() if path != name}
    return held == files or any(one.encode() in told for one in names)
