"""Which gate decides where there are no cases."""

from kept.core.budget import rollouts_within
from kept.core.plan import Plan
from kept.core.ports import Gate
from kept.gates import Strict
from kept.gates.repeats import Repeats

FEWEST = 30
"""Rollouts without which no race over repeats could end in a keep: 13 wins in a row, and a few."""


def gate_without_cases(plan: Plan) -> Gate:
    """The one that runs the seed three times; where a budget cannot pay for more, `strict`."""
    limit = rollouts_within(plan.budget, plan.worst_usd)
    return Repeats() if limit is None or limit >= FEWEST else Strict()
