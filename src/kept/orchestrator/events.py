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
    """What the manager decided."""
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
    """Answers that were no decision."""
    for wrong in garbage:
        yield f"turn {number}: the manager wrote no decision: {_short(wrong)}"


def worker_lines(one: Delegation) -> Iterator[str]:
    """What a worker brought back, and what its critic says."""
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
    """A score and the defects, the worst first."""
    summary = f": {_short(critique.summary)}" if critique.summary else ""
    yield f"    critique {critique.score:.2f}{summary}"
    for one in sorted(critique.defects, key=lambda d: _SEVERITY[d.severity]):
        where = f"{one.severity} {one.category} at {one.location}"
        yield f"      {where}: {_short(one.description)}"


def check_lines(outcomes: tuple[CheckOutcome, ...]) -> Iterator[str]:
    """Which checks a completion passed, and which one refused it."""
    passed = [one.check for one in outcomes if one.passed]
    if passed:
        yield f"  passed: {', '.join(passed)}"
    for one in outcomes:
        if not one.passed:
            yield f"  refused by {one.check}: {_short(one.reason)}"
            told = [f for f in one.findings if f.detail not in one.reason]
            yield from (f"    {f.file}: {_short(f.detail)}" for f in told[:5])


def rejection_line(one: Rejection) -> str:
    """A wish of the manager's that was refused."""
    return f"  refused ({one.gate}): {_short(one.reason)}"


def no_room_line(number: int) -> str:
    """The head of a turn in which nobody could be asked or sent."""
    return f"turn {number}: the budget has no room"


def repair_lines(number: int, one: Delegation, why: str) -> Iterator[str]:
    """A repair that two refusals alike forced."""
    what = one.subtask_id or "the output"
    yield f"turn {number}: {one.worker_id} is to repair {what}: {_short(why)}"


def fixpoint_line(one: Repair) -> str:
    """That repairs came to rest."""
    return f"  the repair is {one.similarity or 0:.0%} like the one before it: repairing ends"


def budget_line(stands: BudgetSnapshot) -> str:
    """Where the budget stands."""
    used = stands.used
    money = f", ${used.usd:.4f}" if used.usd else ""
    return (
        f"{count(used.loops, 'turn')}, {count(used.workers, 'worker')}, "
        f"{count(used.tool_calls, 'tool call')}, {used.tokens} tokens, "
        f"{used.wall_seconds:.1f} s{money}; "
        f"{stands.remaining:.0%} of {stands.scarcest} left ({stands.phase})"
    )


def phase_line(one: Phased) -> str:
    """What a phase without any model came to."""
    files = f", changed {', '.join(one.written[:5])}" if one.written else ""
    why = f": {_short(one.reason)}" if one.reason else ""
    return f"phase {one.name} is {one.status}{files}{why}"


def raised_line(before: Limits, after: Limits) -> str:
    """That a run goes on which a limit had ended."""
    moved = [axis for axis in REASONS if getattr(before, axis) != getattr(after, axis)]
    words = [f"{REASONS[axis]} {_most(before, axis)} -> {_most(after, axis)}" for axis in moved]
    return f"goes on with more: {', '.join(words)}"


def _most(limits: Limits, axis: str) -> str:
    found = most(limits, axis)
    return "no limit" if found == inf else f"{found:g}" if found < 1e6 else f"{found:.0f}"


def turn_lines(
    one: Iteration, repairs: tuple[Repair, ...], rejections: tuple[Rejection, ...]
) -> Iterator[str]:
    """All of one turn."""
    yield from garbage_lines(one.number, one.garbage)
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
    """A decision with whom it sends: older records have only who was sent."""
    if decision.delegations or any(refused.iteration == one.number for refused in rejections):
        return decision
    wishes = (
        Wish(worker_id=sent.worker_id, subtask_id=sent.subtask_id, instructions=sent.instructions)
        for sent in one.delegations
    )
    return replace(decision, delegations=tuple(wishes))


def story(record: AgentRun) -> Iterator[str]:
    """The whole run, from its task to what it left."""
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
    """How it ended."""
    if record.status == "running":
        return f"running, {count(len(record.iterations), 'turn')} so far"
    left = (
        count(len(record.deliverables), "deliverable") if record.deliverables else "no deliverable"
    )
    return f"{record.status} ({_short(record.reason)}), {left}"


def _short(text: str) -> str:
    return one_line(text, _WIDTH)


def agent_run_text(record: AgentRun) -> str:
    """The whole story, with the loss."""
    lines = [*story(record)]
    if record.status != "running":
        lines.append(f"loss: {loss_words(run_loss(record))}")
    return "\n".join(lines)


def agent_run_page(record: AgentRun) -> str:
    """The same as Markdown."""
    return f"# Agent run {record.run_id}\n\n```text\n{agent_run_text(record)}\n```\n"


def agent_run_json(record: AgentRun) -> dict[str, Any]:
    """All of it, for programs."""
    parts = run_loss(record).parts() if record.status != "running" else None
    return {**msgspec.to_builtins(record), "loss": parts}


STORY = "story"
"""The branch of a run's scope that its moments are journalled in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Iterated:
    """One turn of the manager is over, with all that it led to."""

    iteration: Iteration
    plan: tuple[Subtask, ...]
    rejections: tuple[Rejection, ...] = ()
    """New ones."""
    repairs: tuple[Repair, ...] = ()
    """New ones."""
    evaluation: Evaluated | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The run is over."""

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
    """One thing that happened; exactly one of them is there."""

    began: AgentRun | None = None
    iterated: Iterated | None = None
    ended: Ended | None = None
    phased: Phased | None = None
    raised: Limits | None = None
    """What a run goes on with that a limit had ended."""
    usage: Usage = FREE
    """Nothing: what calls cost is counted with them."""


Hearer = Callable[[Moment], None]


class Story:
    """Journals moments, and tells them to whoever listens."""

    def __init__(self, scope: Scope, hear: Hearer | None = None) -> None:
        self._scope = scope.branch(STORY)
        self._hear = hear
        self._told = 0
        self.moments: list[Moment] = []

    async def tell(self, make: Callable[[], Moment]) -> Moment:
        """One more moment: as it was written down, if it was."""

        async def do() -> Moment:
            return make()

        moment = await self._scope.call({"moment": self._told}, Moment, do, 0.0)
        assert not isinstance(moment, Failure), "to write something down does not fail"
        self._told += 1
        self.moments.append(moment)
        if self._hear is not None:
            self._hear(moment)
        return moment


def record_of(moments: Iterable[Moment]) -> AgentRun | None:
    """The record of a run that has come so far; None before it began."""
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
