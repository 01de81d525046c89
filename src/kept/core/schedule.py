"""The plain schedule: every proposer in turn until the budget is used up."""

from dataclasses import dataclass

from kept.core.budget import Budget, StopReason, out_of_time
from kept.core.proposal import Turn
from kept.core.state import State


@dataclass(frozen=True, slots=True)
class RoundRobin:
    """Proposers take turns; one that has no more to give is left out."""

    proposers: tuple[str, ...]
    phase: str = "main"

    def next(self, state: State) -> Turn | StopReason:
        """The proposer with the fewest turns, the earliest of equals."""
        able = [name for name in self.proposers if name not in state.exhausted]
        if not able:
            return StopReason("nothing left to propose", "every proposer has run dry")
        name = min(able, key=lambda name: state.turns.get(name, 0))
        return Turn(proposer=name, phase=self.phase, number=state.turns.get(name, 0))


def budget_stop(budget: Budget, state: State, elapsed: float) -> StopReason | None:
    """Why no further step may open, None when one may."""
    if budget.max_iterations is not None and state.next_step >= budget.max_iterations:
        return StopReason("iterations", f"all {budget.max_iterations} iterations are used")
    return too_many_failures(budget, state) or out_of_time(budget, elapsed)


def too_many_failures(budget: Budget, state: State) -> StopReason | None:
    """Why a run that keeps crashing ends; None while it may go on."""
    if budget.max_failures is None or state.crashes < budget.max_failures:
        return None
    return StopReason("failures", f"{state.crashes} steps crashed, the limit")
