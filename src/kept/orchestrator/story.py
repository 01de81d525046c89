"""What happens in an agent run, moment by moment, and the record that the moments come to.

Each moment is journalled in the scope of the run as a call that costs nothing, so that a resume is
told the same, and whoever reads the journal knows how far a run had come that was killed.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from kept.core.ports import Scope
from kept.core.rollout import FREE, Failure, Usage
from kept.orchestrator.record import (
    AgentRun,
    BudgetSnapshot,
    Critique,
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
)

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
            run = _raised(run, moment.raised)
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


def _raised(run: AgentRun, limits: Limits) -> AgentRun:
    now = Raised(after=len(run.iterations), before=run.limits, limits=limits)
    return replace(
        run, limits=limits, raised=(*run.raised, now), status="running", reason="", ended=None
    )
