"""Kept, through `kept.optimize` alone, its journal on disk; `how` is its gate."""

import tempfile
from typing import Literal, cast

from bench.quality.order import End, Order, obey
from bench.quality.tasks import CASES, SEED, TRAIN, Trial
from kept import Append, Brief, Budget, Candidate, Proposal, Result, optimize


def act(trial: Trial, order: Order) -> End:
    async def evaluate(candidate: Candidate, case: dict[str, int]) -> float:
        return trial.roll_out(candidate.text, case["number"])

    def propose(brief: Brief) -> Proposal:
        seen = [cast("dict[str, int]", case.data)["number"] for case in brief.train]
        rule, case = trial.rule(brief.turn.number, seen)
        return Proposal((Append("text", rule),), cites=(f"c{case}",))

    with tempfile.TemporaryDirectory(prefix="kept-quality-") as home:
        result = optimize(
            SEED,
            evaluate,
            [{"id": f"c{n}", "number": n} for n in range(CASES)],
            proposers=[propose],
            gate=cast("Literal['strict', 'race']", order.how),
            bounds=(0.0, 1.0),
            split=f"{TRAIN}:25:10",
            budget=Budget(max_rollouts=order.rollouts),
            home=home,
        )
    return End(result.best.text, claimed(result))


def claimed(result: Result) -> float:
    """What its report says: of the sealed test where it was read, else of the deciding cases."""
    if result.best_value is None or result.seed_value is None:
        return 0.0
    return result.best_value - result.seed_value


if __name__ == "__main__":
    obey(act)
