"""The money of proposers' calls is bounded like that of rollouts."""

from pathlib import Path

import kept
from kept.core.ports import ModelReply, Scope
from kept.core.rollout import Usage


def run(home: Path, usd: float, limit: float, width: int) -> kept.Result:
    """A run whose proposer makes a call of so much money for every step."""

    async def propose(brief: kept.Brief, scope: Scope) -> str:
        async def reply() -> ModelReply:
            return ModelReply(f"t{brief.step}", Usage(calls=1, usd=usd))

        answer = await scope.call({"step": brief.step}, ModelReply, reply)
        assert isinstance(answer, ModelReply)
        return brief.incumbent.text + answer.text

    async def evaluate(candidate: kept.Candidate) -> float:
        return 0.5

    return kept.optimize(
        "a",
        evaluate,
        proposers=[propose],
        home=home,
        budget=kept.Budget(max_usd=limit, max_iterations=40),
        usd_per_rollout=0.01,
        width=width,
    )


def test_calls_of_proposers_do_not_overdraw_a_money_budget(tmp_path: Path):
    result = run(tmp_path, usd=0.9, limit=1.0, width=16)
    assert result.spend.usd <= 1.0
    assert result.stopped.kind == "usd"


def test_what_fits_is_called_side_by_side(tmp_path: Path):
    result = run(tmp_path, usd=0.02, limit=2.0, width=8)
    assert result.spend.calls == 40
    assert result.spend.usd <= 2.0
