"""The eight stages that every iteration goes through, found in the records of a step.

The journal has a record for each thing that happened; `RECORDS` says which of them shows which
stage, and `stages_of` tells a step stage by stage.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from kept.core.event import Proposed, RunStarted, StepClosed, StepOpened
from kept.core.objective import Objective
from kept.core.proposal import Claim, Measure, Note, Proposal, ProposerFailed, Prove, Skip
from kept.core.score import Checked, Evaluation, check_constraints

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
    """What the journal holds of a closed step, rollouts apart."""

    started: RunStarted
    opened: StepOpened
    proposed: Proposed | None
    closed: StepClosed

    @property
    def evaluation(self) -> Evaluation | None:
        """What was measured of its candidate to decide; None when nothing was."""
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
        yield "validate_constraints", _constraints(step.checked(objective))
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


def _constraints(checked: tuple[Checked, ...]) -> str:
    words = (f"{one} ({'holds' if one.holds else 'broken'})" for one in checked)
    return "; ".join(words) or "none"
