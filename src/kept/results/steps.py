"""Details of a step, closed or open, and the rollouts of one case, newest first."""

from collections.abc import Iterator
from dataclasses import dataclass

from kept.core.edit import Edit, SetValue
from kept.core.event import Stage, StepRecords, stages_of
from kept.core.proposal import (
    Claim,
    Measure,
    Note,
    Proposal,
    ProposerFailed,
    Prove,
    Reply,
    Skip,
    Turn,
    proposal_scope,
)
from kept.core.rollout import Job, TraceItem
from kept.core.score import Outcome
from kept.results.diffs import step_diff
from kept.results.summary import StepLine, line_of, objective_from
from kept.store.jsonl import decoded
from kept.store.overview import OpenNow
from kept.store.reader import Run
from kept.store.step_index import answered_step, opened_step


@dataclass(frozen=True, slots=True)
class EditFate:
    """What one edit was and what became of it."""

    edit: Edit
    fate: str
    """Empty while the step has no verdict."""
    detail: str

    @property
    def words(self) -> str:
        """`set_value config.ini: temperature = 0.2`."""
        name = f"{self.edit.op} {self.edit.path}"
        if isinstance(self.edit, SetValue):
            name += f": {self.edit.key} = {self.edit.value}"
        return name


@dataclass(frozen=True, slots=True)
class StepRollout:
    """One rollout that a step asked for."""

    job: Job
    side: str
    """`challenger`, `incumbent`, or `other` for candidates that a rebase left behind."""
    outcome: Outcome
    trace: tuple[TraceItem, ...]
    """Empty unless traces were asked for."""


@dataclass(frozen=True, slots=True)
class StepDetail:
    """A step in full."""

    step: int
    turn: Turn
    incumbent: str
    row: StepLine | None
    """None while it has no verdict."""
    reply: str
    """What the proposer answered, in words; empty while it is at work."""
    edits: tuple[EditFate, ...]
    diff: str
    rollouts: tuple[StepRollout, ...]
    proposing: tuple[TraceItem, ...] = ()
    """What happened while it was proposed; empty unless traces were asked for."""
    stages: tuple[Stage, ...] = ()
    """What happened in each stage; empty while it has no verdict."""
    prompt: str = ""
    """The file of the user's own that told a model to propose; empty where it was Kept's."""


def step_detail(run: Run, step: int, *, traces: bool = False) -> StepDetail:
    """A step that the run has, in full; without reading any other."""
    for opened in run.glance.open:
        if opened.step == step:
            return _open_detail(run, opened, traces)
    closed = run.closed(step)
    row = run.steps[step]
    opened, answered = opened_step(run.folder, row), answered_step(run.folder, row)
    turn = opened.turn if opened else Turn(row.proposer, row.phase)
    reply = answered.reply if answered else None
    started = run.glance.begun
    objective = objective_from(started)
    records = StepRecords(started, opened, answered, closed) if opened else None
    return StepDetail(
        step,
        turn,
        closed.incumbent,
        line_of(row, objective, reply),
        _words(reply),
        tuple(EditFate(r.edit, r.fate, r.detail) for r in closed.reports),
        step_diff(run, closed),
        tuple(_rollouts(run, step, (closed.candidate, closed.incumbent), traces)),
        _proposing(run, step) if traces else (),
        stages_of(records, objective) if records else (),
        prompt=_prompt(run, turn),
    )


def _prompt(run: Run, turn: Turn) -> str:
    own = decoded(run.glance.begun.facts.get("prompts") or {}, dict[str, str], "facts.prompts")
    return own.get(turn.proposer, "")


def _proposing(run: Run, step: int) -> tuple[TraceItem, ...]:
    """What happened while a proposal was made, where a program made it."""
    ran = run.executions([proposal_scope(step)])
    return tuple(item for _, rollout in ran for item in rollout.trace)


def _open_detail(run: Run, opened: OpenNow, traces: bool) -> StepDetail:
    reply = opened.reply
    edits = reply.edits if isinstance(reply, Proposal) else ()
    rollouts = _rollouts(run, opened.step, (None, opened.incumbent), traces, opened.rollouts_at)
    return StepDetail(
        opened.step,
        opened.turn,
        opened.incumbent,
        None,
        _words(reply),
        tuple(EditFate(edit, "", "") for edit in edits),
        "",
        tuple(rollouts),
        _proposing(run, opened.step) if traces else (),
        prompt=_prompt(run, opened.turn),
    )


def _words(reply: Reply | None) -> str:
    match reply:
        case Proposal():
            return f"{reply.why}\n\n{reply.unseen}".strip()
        case Note():
            return f"a note: {reply.text}"
        case Skip():
            return f"nothing: {reply.why}"
        case ProposerFailed():
            return f"failed: {reply.failure.message}\n{reply.failure.detail}".strip()
        case Prove():
            return "have what leads proven"
        case Claim():
            return "have the gain measured on the sealed test"
        case Measure():
            return "have the seed measured"
        case None:
            return ""


def _rollouts(
    run: Run, step: int, sides: tuple[str | None, str], traces: bool, start: int | None = None
) -> Iterator[StepRollout]:
    """Those that a step asked for; of an open one those behind `start`."""
    names = {sides[1]: "incumbent", sides[0]: "challenger"}
    found = run.rollouts(step) if start is None else run.rollouts_from(start, step)
    for _, job, outcome in found:
        # an open step has no candidate on record yet: what is not the incumbent is its own
        side = names.get(job.candidate_id, "other" if start is None else "challenger")
        trace = run.trace(outcome.trace) if traces and outcome.trace else ()
        yield StepRollout(job, side, outcome, trace)


TRACED = 3
"""Rollouts that are told from beginning to end where nobody asks for all of them."""

MOST = 5
"""Cases that are named where one is meant that there is not."""


def case_rollouts(run: Run, case: str, *, traces: bool = False) -> tuple[StepRollout, ...]:
    """Every rollout of a case, the last first; without `traces`, only the last few have theirs."""
    found = [(step, job, outcome) for step, job, outcome in run.rollouts() if job.case_id == case]
    made: dict[str | None, int] = {}
    for closed in run.state.history:
        made.setdefault(closed.candidate, closed.step)
    rows: list[StepRollout] = []
    for n, (step, job, outcome) in enumerate(reversed(found)):
        trace = run.trace(outcome.trace) if outcome.trace and (traces or n < TRACED) else ()
        # whose it is, not who asked for it: a later step may look at what an earlier one made
        by = made.get(job.candidate_id, step)
        side = "seed" if job.candidate_id == run.state.seed else f"step {by}"
        rows.append(StepRollout(job, side, outcome, trace))
    return tuple(rows)


def cases_like(run: Run, name: str) -> list[str]:
    """The case of this name; else all whose names begin so."""
    jobs = (job.case_id for _, job, _ in run.rollouts())
    found = dict.fromkeys(case for case in jobs if case.startswith(name))
    return [name] if name in found else list(found)


def some_cases(run: Run, most: int = MOST) -> list[str]:
    """A few of the cases that were run."""
    found: dict[str, None] = {}
    for _, job, _ in run.rollouts():
        found[job.case_id] = None
        if len(found) == most:
            break
    return list(found)
