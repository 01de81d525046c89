"""Journal records, the eight stages of an iteration, and open and closed steps.

Each event is one frozen record. It carries its `kind`, so that a line is readable without
context. It also carries the time of writing, which no decision may use.

`RECORDS` maps kinds of records to stages; `stages_of` lists the stages of a step.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from kept.core.alpha import Ledger
from kept.core.budget import NO_CALL, NOTHING, Budget, Dearest, Spend, StopReason
from kept.core.edit import EditReport
from kept.core.objective import Constraint, Direction, Objective
from kept.core.proposal import (
    Claim,
    ClosedStep,
    Measure,
    Note,
    Proposal,
    ProposerFailed,
    Prove,
    Reply,
    Skip,
    Turn,
)
from kept.core.score import Checked, Evaluation, check_constraints
from kept.core.verdict import Verdict

SCHEMA = 2
"""Version of the records; a reader refuses journals with a higher one."""


Document = Mapping[str, object]
"""A JSON object that core hands on as it is."""

_NOTHING: Document = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecSettings:
    """Source of a run: its spec, its overrides, and the folder of its files."""

    path: str = ""
    """Of the spec; empty for a run that was started from Python."""
    id: str = ""
    description: str = ""
    source: str = ""
    """The folder that `kept adopt` writes to; empty where there is none."""
    names: Mapping[str, str] = field(default_factory=dict[str, str])
    """Files in the source by artifact, where they are called otherwise."""
    overrides: tuple[str, ...] = ()
    """Overrides by `--set`, as typed."""
    hidden: tuple[str, ...] = ()
    """Keys that `--set` gave a secret to, which is not written down."""
    results: str = ""
    """The folder of the files that the run leaves besides its journal."""
    named: bool = False
    """True if the user named that folder; else it holds a folder for each run."""
    runner: Document = field(default_factory=lambda: _NOTHING)
    scorer: Document = field(default_factory=lambda: _NOTHING)
    sandbox: Document = field(default_factory=lambda: _NOTHING)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """Settings that runs of every recipe have."""

    metric: str = "score"
    direction: Direction = "maximize"
    gate: str = ""
    not_race: str = ""
    """Reason for another gate than most runs have; empty if a spec names the gate."""
    gate_why: str = ""
    """The reason for the gate, where a recipe gives one for every gate."""
    guards: tuple[str, ...] = ()
    proposers: tuple[str, ...] = ()
    cases: Mapping[str, int] | None = field(default_factory=dict[str, int])
    """Number of cases by split; None for a run without cases."""
    sampled: bool = True
    """True if cases are samples of one population; the tasks of a suite are not."""
    budget: Budget = field(default_factory=Budget)
    width: int = 1
    workers: int = 1
    random_seed: int = 0
    constraints: tuple[Constraint, ...] = ()
    tie_breakers: tuple[str, ...] = ()
    tie_tolerance: float = 0.0
    seed_value: float | None = None
    """Metric of the seed, where it was measured before the run."""
    stages: Mapping[str, str] = field(default_factory=dict[str, str])
    """Stage of a step to the kind of its record."""
    home: str = ""
    """The `.kept` folder that the run began in."""
    spec: SpecSettings = SpecSettings()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted:
    """A run began.

    `request` and `facts` are JSON that the recipe writes and decodes: what was asked for, and what
    it found out about it.
    """

    run_id: str
    recipe: str
    seed: str
    """Id of the seed candidate."""
    inputs: Mapping[str, str]
    """Hashes of what the run depends on, by name; a resume compares them."""
    settings: RunSettings = RunSettings()
    request: Document = field(default_factory=lambda: _NOTHING)
    facts: Document = field(default_factory=lambda: _NOTHING)
    version: str
    t: float
    schema: int = SCHEMA
    kind: Literal["run_started"] = "run_started"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResumed:
    """A run that had stopped goes on."""

    settings: RunSettings | None = None
    """As at the start, where a resume may differ: a larger budget, say; None for no change."""
    request: Document = field(default_factory=lambda: _NOTHING)
    facts: Document = field(default_factory=lambda: _NOTHING)
    version: str
    t: float
    kind: Literal["run_resumed"] = "run_resumed"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOpened:
    """A step began."""

    step: int
    turn: Turn
    incumbent: str
    rollouts_at: int
    """Size of the rollout file then: everything this step asks for stands behind it."""
    t: float
    kind: Literal["step_opened"] = "step_opened"


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposed:
    """A proposer answered."""

    step: int
    reply: Reply
    spend: Spend = NOTHING
    t: float
    kind: Literal["proposed"] = "proposed"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepClosed:
    """A step has its verdict."""

    step: int
    candidate: str | None
    """None when there was nothing to judge."""
    incumbent: str
    """The incumbent that it was judged against, after the last rebase."""
    reports: tuple[EditReport, ...]
    verdict: Verdict
    evaluations: tuple[Evaluation, ...]
    """Tallies of both sides, by purpose."""
    spend: Spend
    rollouts: tuple[int, int]
    """Byte range of the rollout file that holds its rollouts, among others."""
    given_up: StopReason | None = None
    """Limit that it did not fit into; from here on, only the end of the run is paid."""
    dearest: Dearest = NO_CALL
    """Of all calls so far."""
    times: Mapping[str, float] = field(default_factory=dict[str, float])
    """When rollouts began, when the last was scored, when the gate decided; by stage."""
    t: float
    kind: Literal["step_closed"] = "step_closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStopped:
    """A sitting ended in good order."""

    reason: StopReason
    t: float
    spend: Spend = NOTHING
    """Spend of closed steps after they closed that no later step has counted."""
    kind: Literal["run_stopped"] = "run_stopped"


def resumed(started: RunStarted, event: RunResumed) -> RunStarted:
    """Start of a run, with the changes of its resumes."""
    if event.settings is None:
        return started
    settings = replace(event.settings, home=started.settings.home)
    return replace(started, settings=settings, request=event.request, facts=event.facts)


Event = RunStarted | RunResumed | StepOpened | Proposed | StepClosed | RunStopped


RECORDS: Mapping[str, str] = {
    "load_task": "run_started",
    "snapshot_baseline": "step_opened",
    "mutate_artifacts": "proposed",
    "run_candidate": "call",
    "score_candidate": "rollout",
    "validate_constraints": "step_closed",
    "decide": "step_closed",
    "log_iteration": "step_closed",
}
"""Stage to the kind of its record: `call` and `rollout` stand in rollouts.jsonl."""

NOT_REACHED = "not reached"


@dataclass(frozen=True, slots=True)
class StepRecords:
    """Journal records of a closed step, without its rollouts."""

    started: RunStarted
    opened: StepOpened
    proposed: Proposed | None
    closed: StepClosed

    @property
    def evaluation(self) -> Evaluation | None:
        """Evaluation of its candidate on deciding cases, or else another; None without any."""
        mine = [e for e in self.closed.evaluations if e.candidate == self.closed.candidate]
        return next((e for e in mine if e.purpose == "decide"), mine[0] if mine else None)

    def checked(self, objective: Objective) -> tuple[Checked, ...]:
        """Every constraint against what was measured; empty when nothing was."""
        return check_constraints(self.evaluation, objective) if self.evaluation else ()


class Stage(NamedTuple):
    """One stage of a step."""

    name: str
    t: float | None
    """When it was recorded: of `run_candidate` its beginning; None where it was not reached."""
    what: str


def stages_of(step: StepRecords, objective: Objective) -> tuple[Stage, ...]:
    """A step, stage by stage."""
    told = dict(_told(step, objective))
    times = {
        "run_started": step.started.t,
        "step_opened": step.opened.t,
        "proposed": step.proposed.t if step.proposed else None,
        "step_closed": step.closed.t,
    }
    # a step closes after it is decided: earlier ones close first
    own = step.closed.times
    return tuple(
        Stage(name, own.get(name, times.get(kind)), told.get(name, NOT_REACHED))
        for name, kind in RECORDS.items()
    )


def _told(step: StepRecords, objective: Objective) -> Iterator[tuple[str, str]]:
    closed, evaluation = step.closed, step.evaluation
    yield "load_task", f"inputs {', '.join(f'{k} {v}' for k, v in step.started.inputs.items())}"
    yield "snapshot_baseline", f"incumbent {closed.incumbent}"
    if step.proposed is not None:
        yield "mutate_artifacts", _mutation(step.proposed, closed)
    if evaluation is not None:
        failed = f", {evaluation.failed} failed" if evaluation.failed else ""
        failed += f", {evaluation.missing} without an answer" if evaluation.missing else ""
        yield "run_candidate", f"rollouts {evaluation.asked}{failed}"
        means = (f"{name} {tally.mean:.6g}" for name, tally in evaluation.metrics.items())
        yield "score_candidate", ", ".join(means) or evaluation.first_failure
        checked = step.checked(objective)
        words = (f"{one} ({'holds' if one.holds else 'broken'})" for one in checked)
        yield "validate_constraints", "; ".join(words) or "none"
    yield "decide", f"{closed.verdict.outcome}: {closed.verdict.words}"
    yield "log_iteration", f"step {closed.step}"


def _mutation(proposed: Proposed, closed: StepClosed) -> str:
    match proposed.reply:
        case Proposal():
            took = sum(report.fate == "applied" for report in closed.reports)
            return f"{took} of {len(closed.reports)} edits applied: candidate {closed.candidate}"
        case Note():
            return "a note"
        case Skip(why=why):
            return f"nothing: {why}"
        case ProposerFailed(failure=failure):
            return f"failed: {failure.message}"
        case Prove() | Claim() | Measure():
            return "nothing: a measurement"


class OpenStep(NamedTuple):
    """A step without a verdict."""

    step: int
    turn: Turn
    incumbent: str
    """The incumbent that it is judged against; changes when an earlier step is kept."""
    rollouts_at: int
    rebases: int = 0
    reply: Reply | None = None
    """None while the proposer is at work."""
    spend: Spend = NOTHING
    ledger: Ledger = Ledger()
    """As it was when this step was given its level; nothing that is open is in it. That
    repeats differ, however, is told to every open step as soon as it is known."""


def closed_step(step: OpenStep, event: StepClosed, alone: bool) -> ClosedStep:
    """Result of a step; `alone` if there is a single case, which every proposer may see."""
    own = [e for e in event.evaluations if e.candidate == event.candidate]
    mine = {e.purpose: e.loss for e in own}
    verdict = event.verdict
    if verdict.private and not alone:
        # the state is what briefs are made of, and a deciding case is not for proposers
        verdict = replace(verdict, private="")
    return ClosedStep(
        step=step.step,
        turn=step.turn,
        incumbent=event.incumbent,
        candidate=event.candidate,
        proposal=step.reply if isinstance(step.reply, Proposal) else None,
        reports=event.reports,
        verdict=verdict,
        loss=mine.get("decide", mine.get("measure", mine.get("promote"))),
        rollouts=sum([e.asked for e in own]),
        usd=sum([e.usd for e in own]) + step.spend.usd,
        skip=step.reply if isinstance(step.reply, Skip) else None,
    )


def screened(event: StepClosed) -> tuple[tuple[str, float], ...]:
    """The mean loss of its candidate on each train case that it was screened on."""
    mine = (e for e in event.evaluations if e.candidate == event.candidate)
    shown = next((e for e in mine if e.purpose == "screen"), None)
    return () if shown is None else tuple((case, t.mean) for case, t in shown.cases.items())
