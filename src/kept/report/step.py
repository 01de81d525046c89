"""All there is of one step, closed or open."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, cast

from kept.core.edit import Edit, SetValue
from kept.core.event import Proposed
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
from kept.core.stage import Stage, stages_of
from kept.report.changes import step_diff
from kept.report.document import step_row
from kept.report.summary import StepLine, objective_of, step_lines
from kept.store.reader import Run
from kept.store.views import Records


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
    """A step that the run has, in full."""
    for opened in run.state.open:
        if opened.step == step:
            return _open_detail(run, step, opened.turn, traces)
    closed = run.closed(step)
    row = next(row for row in step_lines(run) if row.step == step)
    turn = next(past.turn for past in run.state.closed if past.step == step)
    return StepDetail(
        step,
        turn,
        closed.incumbent,
        row,
        _words(_reply(run, step)),
        tuple(EditFate(r.edit, r.fate, r.detail) for r in closed.reports),
        step_diff(run, closed),
        tuple(_rollouts(run, step, (closed.candidate, closed.incumbent), traces)),
        _proposing(run, step) if traces else (),
        _stages(run, step),
        prompt=_prompt(run, turn),
    )


def _prompt(run: Run, turn: Turn) -> str:
    started = run.state.started
    own = started.facts.get("prompts") if started else None
    return cast("dict[str, str]", own).get(turn.proposer, "") if own else ""


def _proposing(run: Run, step: int) -> tuple[TraceItem, ...]:
    """What happened while a proposal was made, where a program made it."""
    ran = run.executions([proposal_scope(step)])
    return tuple(item for _, rollout in ran for item in rollout.trace)


def _stages(run: Run, step: int) -> tuple[Stage, ...]:
    records = Records()
    heard = (records.hear(event) for event in run.events)
    return next(stages_of(r, objective_of(run.state)) for r in heard if r and r.closed.step == step)


def _open_detail(run: Run, step: int, turn: Turn, traces: bool) -> StepDetail:
    opened = next(s for s in run.state.open if s.step == step)
    reply = opened.reply
    edits = reply.edits if isinstance(reply, Proposal) else ()
    rollouts = _rollouts(run, step, (None, opened.incumbent), traces)
    return StepDetail(
        step,
        turn,
        opened.incumbent,
        None,
        _words(reply),
        tuple(EditFate(edit, "", "") for edit in edits),
        "",
        tuple(rollouts),
        _proposing(run, step) if traces else (),
        prompt=_prompt(run, turn),
    )


def _reply(run: Run, step: int) -> Reply | None:
    for event in run.events:
        if isinstance(event, Proposed) and event.step == step:
            return event.reply
    return None


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
    run: Run, step: int, sides: tuple[str | None, str], traces: bool
) -> Iterator[StepRollout]:
    names = {sides[1]: "incumbent", sides[0]: "challenger"}
    closed = any(past.step == step for past in run.state.closed)
    for number, job, outcome in run.rollouts(step if closed else None):
        if number == step:
            # an open step has no candidate on record yet: what is not the incumbent is its own
            side = names.get(job.candidate_id, "other" if closed else "challenger")
            trace = run.trace(outcome.trace) if traces and outcome.trace else ()
            yield StepRollout(job, side, outcome, trace)


def step_json(detail: StepDetail) -> dict[str, Any]:
    """A step in full, as a document."""
    head = step_row(detail.row) if detail.row else {"step": detail.step, "verdict": None}
    return {
        **head,
        "turn": asdict(detail.turn),
        "prompt": detail.prompt or None,
        "reply": detail.reply,
        "edits": [
            {"edit": asdict(e.edit), "fate": e.fate, "detail": e.detail} for e in detail.edits
        ],
        "proposing": [asdict(item) for item in detail.proposing],
        "diff": detail.diff,
        "stages": {stage.name: {"t": stage.t, "what": stage.what} for stage in detail.stages},
        "rollouts": [_rollout_json(rollout) for rollout in detail.rollouts],
    }


def _rollout_json(rollout: StepRollout) -> dict[str, Any]:
    job, outcome = rollout.job, rollout.outcome
    return {
        "candidate": job.candidate_id,
        "side": rollout.side,
        "purpose": job.purpose,
        "case": job.case_id,
        "repeat": job.repeat,
        "metrics": dict(outcome.metrics),
        "failure": asdict(outcome.failure) if outcome.failure else None,
        "findings": [asdict(finding) for finding in outcome.findings],
        "usage": asdict(outcome.usage),
        "seconds": outcome.seconds,
        "tries": outcome.tries,
        "trace": [asdict(item) for item in rollout.trace],
    }
