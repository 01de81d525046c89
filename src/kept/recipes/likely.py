"""What a rollout is likely to cost, before any was paid for."""

from collections.abc import Sequence
from typing import Any, Protocol, cast, runtime_checkable

from kept.core.artifact import Candidate
from kept.core.case import Case
from kept.core.plan import Plan


@runtime_checkable
class Usual(Protocol):
    """A runner that can say what a rollout costs when nothing is unusual about it."""

    def usual_usd(self, candidate: Candidate, case: Case) -> float | None:
        """With a reply of middling length; None where nobody can tell."""
        ...


def usual_call(plan: Plan) -> float | None:
    """The mean over cases of what a rollout of the seed usually costs; None where nobody knows."""
    if not isinstance(plan.runner, Usual):
        return None
    cases = (*plan.cases.train, *plan.cases.holdout, *plan.cases.test)
    found = [plan.runner.usual_usd(plan.seed, case) for case in cases]
    known = [usd for usd in found if usd is not None]
    return sum(known) / len(known) if known else None


def paid_for_runs_alone(plan: Plan) -> bool:
    """Whether nobody is paid by the call but the model that is run: no judge, no writer."""
    charges = cast("Sequence[dict[str, Any]]", plan.facts.get("charges", ()))
    return all(charge["by"] == "runner" for charge in charges)
