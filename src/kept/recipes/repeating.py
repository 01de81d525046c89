"""Which gate decides where there are no cases."""

from kept.core.budget import rollouts_within
from kept.core.plan import Plan
from kept.core.ports import Gate
from kept.errors import SetupError
from kept.gates.repeats import Repeats
from kept.gates.strict import Strict

FEWEST = 30
"""Rollouts without which no race over repeats could end in a keep: 13 wins in a row, and a few."""


def gate_without_cases(plan: Plan) -> Gate:
    """The one that runs the seed three times; where a budget cannot pay for more, `strict`."""
    return Repeats() if _too_few(plan) is None else Strict()


def repeats_of(plan: Plan) -> Repeats:
    """The gate `repeats`, where somebody names it and it can decide."""
    if not plan.cases.implicit:
        message = "the gate `repeats` is for a run without cases: it repeats the whole evaluation"
        raise SetupError(message, hint="leave out the cases, or use the gate `race` or `strict`")
    few = _too_few(plan)
    if few is not None:
        hint = f"give it {FEWEST} or more, or use the gate `strict`"
        raise SetupError(f"{few} rollouts are too few for the gate `repeats`", hint=hint)
    return Repeats()


def _too_few(plan: Plan) -> int | None:
    """The rollouts that the budget comes to, where they are too few; else None."""
    limit = rollouts_within(plan.budget, plan.worst_usd)
    return None if limit is None or limit >= FEWEST else limit
