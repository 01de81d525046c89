"""Events of an agent run: journalled moments, the run record, and the narrative.

Each moment is journalled in the scope of the run as a call without cost. So a resume reports the
same, and the journal shows the progress of a killed run. The narrative has one sentence a line,
live and afterwards. The full report adds the loss with its parts.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import msgspec

from kept.core.ports import Scope
from kept.core.rollout import FREE, Failure, Usage
from kept.core.text import count, one_line
from kept.orchestrator.budget import REASONS, most
from kept.orchestrator.loss import loss_words, run_loss
from kept.orchestrator.record import (
    AgentRun,
    BudgetSnapshot,
    CheckOutcome,
    Critique,
    Decision,
    Delegation,
    Deliverable,
    Evaluated,
    Iteration,
    Limits,
    Phased,
    Raised,
    Rejection,
    Repair,
    Status,
    Subtask,
    Wish,
)

_WIDTH = 160
_SEVERITY = {"critical": 0, "warning": 1, "info": 2}


def decision_lines(number: int, decision: Decision) -> Iterator[str]:
    """Yield the lines of a decision of the manager."""
    head = f"turn {number}: the manager"
    match decision.kind:
        case "plan":
            yield f"{head} plans {count(len(decision.plan), 'subtask')}"
            for one in decision.plan:
                files = ", ".join(one.required_outputs)
                leads = f" -> {files}" if files else ""
                yield f"  {one.id}: {_short(one.description)}{leads}"
        case "delegate":
            yield f"{head} sends {count(len(decision.delegations), 'worker')}"
            for one in decision.delegations:
                for_what = one.subtask_id or "no subtask"
                yield f"  {one.worker_id} ({for_what}): {_short(one.instructions)}"
        case "complete":
            sure = "" if decision.confidence is None else f", confidence {decision.confidence:g}"
            yield f"{head} says that it is done{sure}"
        case "fail":
            yield f"{head} gives up: {_short(decision.reason)}"
        case "diagnose":
            whom = f" of {decision.failed_worker}" if decision.failed_worker else ""
            yield f"{head} looks for the cause{whom}"
            yield from (f"  {_short(guess)}" for guess in decision.hypotheses)


def garbage_lines(number: int, garbage: tuple[str, ...]) -> Iterator[str]:
    """Yield a line for each invalid answer of the manager."""
    for wrong in garbage:
        yield f"turn {number}: the manager wrote no decision: {_short(wrong)}"


def worker_lines(one: Delegation) -> Iterator[str]:
    """Yield the lines of a worker's result and its critique."""
    did = f"{count(one.tool_calls, 'tool call')}, {one.seconds:.1f} s"
    if one.failure is not None:
        yield f"  {one.worker_id} failed ({did}): {_short(one.failure.message)}"
    else:
        sure = "" if one.confidence is None else f", confidence {one.confidence:g}"
        files = f", changed {', '.join(one.written[:5])}" if one.written else ""
        yield f"  {one.worker_id} is done ({did}){sure}{files}"
    if one.lost:
        yield f"    {count(one.lost, 'errand')} cut off and run again: what it cost is lost"
    if one.critique is not None:
        yield from critique_lines(one.critique)
    elif one.critique_failure is not None:
        yield f"    no critique: {_short(one.critique_failure.message)}"


def critique_lines(critique: Critique) -> Iterator[str]:
    """Yield the score and the defects, worst first."""
    summary = f": {_short(critique.summary)}" if critique.summary else ""
    yield f"    critique {critique.score:.2f}{summary}"
    for one in sorted(critique.defects, key=lambda d: _SEVERITY[d.severity]):
        where = f"{one.severity} {one.category} at {one.location}"
        yield f"      {where}: {_short(one.description)}"


def check_lines(outcomes: tuple[CheckOutcome, ...]) -> Iterator[str]:
    """Yield the checks that a completion passed, and the one that refused it."""
    passed = [one.check for one in outcomes if one.passed]
    if passed:
        yield f"  passed: {', '.join(passed)}"
    for one in outcomes:
        if not one.passed:
            yield f"  refused by {one.check}: {_short(one.reason)}"
            # most reasons already quote their findings
            told = [f for f in one.findings if f.detail not in one.reason]
            yield from (f"    {f.file}: {_short(f.detail)}" for f in told[:5])


def rejection_line(one: Rejection) -> str:
    """Line of a refused request of the manager."""
    return f"  refused ({one.gate}): {_short(one.reason)}"


def no_room_line(number: int) -> str:
    """Line of a turn without budget for the manager or a worker."""
    return f"turn {number}: the budget has no room"


def repair_lines(number: int, one: Delegation, why: str) -> Iterator[str]:
    """Yield the line of a repair that equal refusals forced."""
    what = one.subtask_id or "the output"
    yield f"turn {number}: {one.worker_id} is to repair {what}: {_short(why)}"


def fixpoint_line(one: Repair) -> str:
    """Line of a repair that changed almost nothing and ends the repairs."""
    return f"  the repair is {one.similarity or 0:.0%} like the one before it: repairing ends"


def budget_line(stands: BudgetSnapshot) -> str:
    """Use of the budget, and what is left on the scarcest axis, in one line."""
    used = stands.used
    money = f", ${used.usd:.4f}" if used.usd else ""
    return (
        f"{count(used.loops, 'turn')}, {count(used.workers, 'worker')}, "
        f"{count(used.tool_calls, 'tool call')}, {used.tokens} tokens, "
        f"{used.wall_seconds:.1f} s{money}; "
        f"{stands.remaining:.0%} of {stands.scarcest} left ({stands.phase})"
    )


def phase_line(one: Phased) -> str:
    """Result of a deterministic phase, in one line."""
    files = f", changed {', '.join(one.written[:5])}" if one.written else ""
    why = f": {_short(one.reason)}" if one.reason else ""
    return f"phase {one.name} is {one.status}{files}{why}"


def raised_line(before: Limits, after: Limits) -> str:
    """Line of a run that continues with higher limits."""
    moved = [axis for axis in REASONS if getattr(before, axis) != getattr(after, axis)]
    words = [f"{REASONS[axis]} {_most(before, axis)} -> {_most(after, axis)}" for axis in moved]
    return f"goes on with more: {', '.join(words)}"


def _most(limits: Limits, axis: str) -> str:
    found = most(limits, axis)
    return "no limit" if found == inf else f"{found:g}" if found < 1e6 else f"{found:.0f}"


def turn_lines(
    one: Iteration, repairs: tuple[Repair, ...], rejections: tuple[Rejection, ...]
) -> Iterator[str]:
    """Yield all lines of one turn."""
    yield from garbage_lines(one.number, one.garbage)
    # a turn without decision and garbage is a forced repair, or had no budget left
    mine = [repair for repair in repairs if repair.iteration == one.number]
    if one.decision is not None:
        yield from decision_lines(one.number, _wished(one, one.decision, rejections))
    elif not one.garbage and not mine:
        yield no_room_line(one.number)
    for repair, sent in zip(mine, one.delegations, strict=False):
        yield from repair_lines(one.number, sent, repair.reason)
    for rejection in rejections:
        if rejection.iteration == one.number and not rejection.completion:
            yield rejection_line(rejection)
    for sent in one.delegations:
        yield from worker_lines(sent)
    for repair in mine:
        if repair.fixpoint:
            yield fixpoint_line(repair)
    yield from check_lines(one.checks)


def _wished(one: Iteration, decision: Decision, rejections: tuple[Rejection, ...]) -> Decision:
    """Return a decision with its requested workers, which older records only have as sent."""
    if decision.delegations or any(refused.iteration == one.number for refused in rejections):
        return decision
    wishes = (
        Wish(worker_id=sent.worker_id, subtask_id=sent.subtask_id, instructions=sent.instructions)
        for sent in one.delegations
    )
    return replace(decision, delegations=tuple(wishes))


def story(record: AgentRun) -> Iterator[str]:
    """Yield the narrative of a whole run, from its task to its deliverables."""
    yield f"task: {record.task.strip()}"
    if record.inputs:
        names = ", ".join(record.inputs[:10])
        more = f" and {len(record.inputs) - 10} more" if len(record.inputs) > 10 else ""
        yield f"inputs: {names}{more}"
    models = record.models
    critic = f", critic {models.critic}" if models.critic not in ("", models.manager) else ""
    yield f"models: manager {models.manager}, worker {models.worker}{critic}"
    yield ""
    yield from map(phase_line, record.phases)
    for one in record.iterations:
        yield from turn_lines(one, record.repairs, record.rejections)
        yield from (
            raised_line(more.before, more.limits)
            for more in record.raised
            if more.after == one.number
        )
    yield ""
    yield end_line(record)
    for one in record.deliverables:
        yield f"  {one.path} ({count(one.bytes, 'byte')}, sha256 {one.sha256[:12]})"
    if record.budget is not None:
        yield f"used: {budget_line(record.budget)}"


def end_line(record: AgentRun) -> str:
    """Status, reason and number of deliverables of a run, in one line."""
    if record.status == "running":
        return f"running, {count(len(record.iterations), 'turn')} so far"
    left = (
        count(len(record.deliverables), "deliverable") if record.deliverables else "no deliverable"
    )
    return f"{record.status} ({_short(record.reason)}), {left}"


def _short(text: str) -> str:
    return one_line(text, _WIDTH)


def agent_run_text(record: AgentRun) -> str:
    """Return the narrative of a run, with its loss."""
    lines = [*story(record)]
    if record.status != "running":
        lines.append(f"loss: {loss_words(run_loss(record))}")
    return "\n".join(lines)


def agent_run_page(record: AgentRun) -> str:
    """Return the narrative and the loss as Markdown."""
    return f"# Agent run {record.run_id}\n\n```text\n{agent_run_text(record)}\n```\n"


def agent_run_json(record: AgentRun) -> dict[str, Any]:
    """Return the record and the loss as JSON-like data."""
    parts = run_loss(record).parts() if record.status != "running" else None
    return {**msgspec.to_builtins(record), "loss": parts}


STORY = "story"
"""Branch of a run's scope with its journalled moments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Iterated:
    """The end of one turn of the manager, with all results."""

    iteration: Iteration
    plan: tuple[Subtask, ...]
    rejections: tuple[Rejection, ...] = ()
    """Rejections of this turn."""
    repairs: tuple[Repair, ...] = ()
    """Repairs of this turn."""
    evaluation: Evaluated | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The end of a run."""

    status: Status
    reason: str
    t: float
    """Seconds since the epoch."""
    budget: BudgetSnapshot
    deliverables: tuple[Deliverable, ...] = ()
    critique: Critique | None = None
    final_result: dict[str, object]
    confidence: float | None = None
    used: Usage = FREE


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One event of a run; exactly one field besides `usage` is set."""

    began: AgentRun | None = None
    iterated: Iterated | None = None
    ended: Ended | None = None
    phased: Phased | None = None
    raised: Limits | None = None
    """New limits of a run that continues after a limit had ended it."""
    usage: Usage = FREE
    """Always free: the cost of calls is counted with the calls."""


Hearer = Callable[[Moment], None]


class Story:
    """Journals moments, and passes them to a listener."""

    def __init__(self, scope: Scope, hear: Hearer | None = None) -> None:
        self._scope = scope.branch(STORY)
        self._hear = hear
        self._told = 0
        self.moments: list[Moment] = []

    async def tell(self, make: Callable[[], Moment]) -> Moment:
        """Journal one more moment; a resume returns the journalled one."""

        async def do() -> Moment:
            return make()

        # keyed by its number: a resume replays the moments in the same order
        moment = await self._scope.call({"moment": self._told}, Moment, do, 0.0)
        assert not isinstance(moment, Failure), "to write something down does not fail"
        self._told += 1
        self.moments.append(moment)
        if self._hear is not None:
            self._hear(moment)
        return moment


def record_of(moments: Iterable[Moment]) -> AgentRun | None:
    """Build the record of a run from its moments; None before it began."""
    run: AgentRun | None = None
    for moment in moments:
        if moment.began is not None:
            run = moment.began
        elif run is not None and moment.iterated is not None:
            run = _iterated(run, moment.iterated)
        elif run is not None and moment.ended is not None:
            run = _ended(run, moment.ended)
        elif run is not None and moment.phased is not None:
            run = replace(run, phases=(*run.phases, moment.phased))
        elif run is not None and moment.raised is not None:
            # the run continues, so its end is undone
            limits = moment.raised
            now = Raised(after=len(run.iterations), before=run.limits, limits=limits)
            raised = (*run.raised, now)
            run = replace(
                run, limits=limits, raised=raised, status="running", reason="", ended=None
            )
    return run


def _iterated(run: AgentRun, news: Iterated) -> AgentRun:
    return replace(
        run,
        plan=news.plan,
        iterations=(*run.iterations, news.iteration),
        rejections=(*run.rejections, *news.rejections),
        repairs=(*run.repairs, *news.repairs),
        evaluation=news.evaluation or run.evaluation,
        budget=news.iteration.budget or run.budget,
    )


def _ended(run: AgentRun, end: Ended) -> AgentRun:
    return replace(
        run,
        status=end.status,
        reason=end.reason,
        ended=end.t,
        budget=end.budget,
        deliverables=end.deliverables,
        critique=end.critique,
        final_result=end.final_result,
        confidence=end.confidence,
        usage=end.used,
    )
