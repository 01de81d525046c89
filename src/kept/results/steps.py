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
    """One edit and its fate."""

    edit: Edit
    fate: str
    """Empty while the step has no verdict."""
    detail: str

    @property
    def words(self) -> str:
        """The edit in one line, such as `set_value config.ini: temperature = 0.2`."""
        name = f"{self.edit.op} {self.edit.path}"
        if isinstance(self.edit, SetValue):
            name += f": {self.edit.key} = {self.edit.value}"
        return name


@dataclass(frozen=True, slots=True)
class StepRollout:
    """One rollout of a step."""

    job: Job
    side: str
    """`challenger`, `incumbent`, or `other` for candidates that a rebase left behind."""
    outcome: Outcome
    trace: tuple[TraceItem, ...]
    """Empty unless traces were requested."""


@dataclass(frozen=True, slots=True)
class StepDetail:
    """A step in full."""

    step: int
    turn: Turn
    incumbent: str
    row: StepLine | None
    """None while it has no verdict."""
    reply: str
    """The proposer's answer in words; empty while it is at work."""
    edits: tuple[EditFate, ...]
    diff: str
    rollouts: tuple[StepRollout, ...]
    proposing: tuple[TraceItem, ...] = ()
    """Trace of the proposing program; empty unless traces were requested."""
    stages: tuple[Stage, ...] = ()
    """Stages of the step in order; empty while it has no verdict."""
    prompt: str = ""
    """The user's prompt file for the proposer; empty if Kept's own prompt was used."""


def step_detail(run: Run, step: int, *, traces: bool = False) -> StepDetail:
    """Read one step of a run in full, without reading others."""
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
    """Trace of the program that made a proposal; empty if a model did."""
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
    """Yield the rollouts of a step; of an open step, read the file from `start` on."""
    names = {sides[1]: "incumbent", sides[0]: "challenger"}
    found = run.rollouts(step) if start is None else run.rollouts_from(start, step)
    for _, job, outcome in found:
        # an open step has no candidate on record yet: all but the incumbent's rollouts are its own
        side = names.get(job.candidate_id, "other" if start is None else "challenger")
        trace = run.trace(outcome.trace) if traces and outcome.trace else ()
        yield StepRollout(job, side, outcome, trace)


TRACED = 3
"""Number of rollouts shown with their traces, unless all are requested."""

MOST = 5
"""Number of cases named as examples when the requested one does not exist."""


def case_rollouts(run: Run, case: str, *, traces: bool = False) -> tuple[StepRollout, ...]:
    """All rollouts of a case, the last first; without `traces`, only the last few have a trace."""
    found = [(step, job, outcome) for step, job, outcome in run.rollouts() if job.case_id == case]
    made: dict[str | None, int] = {}
    for closed in run.state.history:
        made.setdefault(closed.candidate, closed.step)
    rows: list[StepRollout] = []
    for n, (step, job, outcome) in enumerate(reversed(found)):
        trace = run.trace(outcome.trace) if outcome.trace and (traces or n < TRACED) else ()
        # the step that made the candidate: a later step may roll it out again
        by = made.get(job.candidate_id, step)
        side = "seed" if job.candidate_id == run.state.seed else f"step {by}"
        rows.append(StepRollout(job, side, outcome, trace))
    return tuple(rows)


def cases_like(run: Run, name: str) -> list[str]:
    """Return the case of this name, else all whose names begin with it."""
    jobs = (job.case_id for _, job, _ in run.rollouts())
    found = dict.fromkeys(case for case in jobs if case.startswith(name))
    return [name] if name in found else list(found)


def some_cases(run: Run, most: int = MOST) -> list[str]:
    """Return at most `most` of the cases that were run."""
    found: dict[str, None] = {}
    for _, job, _ in run.rollouts():
        found[job.case_id] = None
        if len(found) == most:
            break
    return list(found)
