"""What tuning an agent comes to, told before anything is spent."""

from dataclasses import dataclass, replace
from statistics import fmean

from kept.core.coordinate import Coordinate, Phase
from kept.core.forecast import forecast
from kept.core.model import Message
from kept.core.plan import Plan
from kept.core.ports import Model
from kept.models.connect import connect
from kept.models.pricing import BYTES, REPLY, usual_usd
from kept.recipes.agent.compile import request_of
from kept.spec.agent.cases import TestCaseSpec
from kept.spec.agent.read import ReadAgent


@dataclass(frozen=True, slots=True)
class Expected:
    """Rollouts of a run, and what one of them costs."""

    at_most: int | None
    """Were every trial of every cycle to take as many as it can; None where nothing limits them."""
    useless: int
    """Were nothing better: one cycle, most of which is dropped early."""
    kept: int
    """Were something kept in the first cycle, proven, and nothing in the second."""
    usd_a_rollout: float | None
    """Of the agent's own model; None where its price is not known."""
    max_usd: float | None

    def usd(self, rollouts: int | None) -> float | None:
        """What so many rollouts cost, and never more than the limit; None where nobody can tell."""
        if rollouts is None or self.usd_a_rollout is None:
            return self.max_usd
        cost = rollouts * self.usd_a_rollout
        return cost if self.max_usd is None else min(cost, self.max_usd)


def expected(plan: Plan, schedule: Coordinate, read: ReadAgent) -> Expected:
    """By the phases that there are, and by what a gate usually asks for."""
    whole = schedule.max_cycles * sum(phase.max_trials for phase in schedule.phases)
    dry = sum(map(_dry, schedule.phases))
    worst, useless, kept = (
        forecast(replace(plan, budget=replace(plan.budget, max_iterations=steps)))
        for steps in (whole, dry, min(whole, 2 * dry))
    )
    assert useless.likely is not None and kept.likely is not None, "so many steps and no more"
    return Expected(
        worst.rollouts,
        useless.likely.useless,
        kept.likely.kept,
        usd_a_rollout(read),
        plan.budget.max_usd,
    )


def _dry(phase: Phase) -> int:
    """Trials of a phase that keeps nothing."""
    return min(phase.max_trials, max(phase.least, phase.patience))


def usd_a_rollout(read: ReadAgent) -> float | None:
    """The mean over the cases of a call a turn, with replies of middling length."""
    model = connect(read.agent.model_config(read.place.folder))
    found = [_usd(model, read, case) for case in read.cases]
    known = [usd for usd in found if usd is not None]
    return fmean(known) if known else None


def _usd(model: Model, read: ReadAgent, case: TestCaseSpec) -> float | None:
    request, total = request_of(read.agent), 0.0
    for turn in case.exchanges:
        request = replace(request, messages=(*request.messages, Message("user", turn.input)))
        cost = usual_usd(model, request)
        if cost is None:
            return None
        total += cost
        said = Message("assistant", "x" * REPLY * BYTES)
        request = replace(request, messages=(*request.messages, said))
    return total
