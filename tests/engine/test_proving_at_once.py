"""Ends of a race: a pool proven at once, what cancels tried alone, an evaluator without noise."""

import math
from pathlib import Path

import pytest

import kept
from kept.core.schedules.round_robin import CLAIM, PROVE
from tests.engine.test_racing import chance, names

CASES = list(range(50))


def optimize(
    home: Path, evaluate: object, propose: object, rollouts: int, **more: object
) -> kept.Result:
    return kept.optimize(
        "seed\n",
        evaluate,  # pyright: ignore[reportArgumentType] # a function of candidate and case
        CASES,
        proposers=[propose],  # pyright: ignore[reportArgumentType] # a function of the brief
        bounds=(0, 1),
        budget=kept.Budget(max_rollouts=rollouts),
        workers=8,
        width=2,
        home=home,
        **more,  # pyright: ignore[reportArgumentType] # by name
    )


class Noisy:
    """Passes by chance, more often with every text of a kind that helps."""

    def __init__(self, seed: int = 0) -> None:
        self.seed, self.calls = seed, 0

    def logit(self, text: str) -> float:
        return 0.5 * text.count("good") - 0.2 * text.count("bad")

    async def evaluate(self, candidate: kept.Candidate, case: int) -> float:
        self.calls += 1
        odds = 1 / (1 + math.exp(-self.logit(candidate.text) - chance(case) + 0.9))
        return float(chance(self.seed, self.calls) < odds)

    def propose(self, brief: kept.Brief) -> kept.Proposal:
        kind = ("good", "idle", "bad")[int(3 * chance("kind", self.seed, brief.step))]
        return kept.Proposal((kept.Append("text", f"{kind} {brief.step}\n"),))


class Rivals(Noisy):
    """Two kinds help, each by itself; together they undo each other."""

    def logit(self, text: str) -> float:
        return 1.2 if ("red" in text) != ("blue" in text) else 0.0

    def propose(self, brief: kept.Brief) -> kept.Proposal:
        kind = ("red", "blue", "idle", "idle")[int(4 * chance("kind", self.seed, brief.step))]
        return kept.Proposal((kept.Append("text", f"{kind} {brief.step}\n"),))


@pytest.mark.slow
def test_a_small_budget_proves_its_pool_at_once(tmp_path: Path):
    results = [
        optimize(tmp_path / str(seed), (world := Noisy(seed)).evaluate, world.propose, 1000)
        for seed in range(8)
    ]
    promoted = [result for result in results if result.improved]
    assert len(promoted) >= 5
    for result in promoted:
        (proven,) = (step for step in result.state.history if step.verdict.best)
        assert proven.verdict.numbers["p"] <= proven.verdict.numbers["alpha_promote"]
        assert result.state.ledger.promotions == 1
        assert result.best.text.count("good") > result.best.text.count("bad")
    at_once = [result for result in promoted if PROVE not in names(result.state)]
    assert at_once
    for result in at_once:
        (step,) = (step for step in result.state.history if step.verdict.outcome == "keep")
        assert (step.turn.proves, step.verdict.best) == (True, True)
    assert all(result.spend.rollouts <= 1000 for result in results)


@pytest.mark.slow
def test_what_undoes_each_other_in_a_pool_is_found_alone(tmp_path: Path):
    results = [
        optimize(tmp_path / str(seed), (world := Rivals(seed)).evaluate, world.propose, 2500)
        for seed in range(6)
    ]
    found = [r for r in results if ("red" in r.best.text) != ("blue" in r.best.text)]
    assert len(found) >= 4, [r.best.text for r in results]


def test_without_noise_a_case_is_asked_once_of_all_but_the_seed(tmp_path: Path):
    asked: dict[tuple[str, int], int] = {}

    async def evaluate(candidate: kept.Candidate, case: int) -> float:
        asked[candidate.id, case] = asked.get((candidate.id, case), 0) + 1
        return min(1.0, 0.2 + 0.05 * candidate.text.count("good") + 0.1 * chance(case))

    def propose(brief: kept.Brief) -> kept.Proposal:
        kind = "good" if brief.step % 3 == 0 else "idle"
        return kept.Proposal((kept.Append("text", f"{kind} {brief.step}\n"),))

    result = optimize(tmp_path, evaluate, propose, 600)
    assert result.improved
    assert "idle" not in result.best.text
    assert names(result.state)[-1] == CLAIM
    most: dict[str, int] = {}
    for (candidate, _), times in asked.items():
        most[candidate] = max(most.get(candidate, 0), times)
    # for each purpose, and a few twice to see whether it still holds
    assert max(n for id_, n in most.items() if id_ != result.seed.id) <= 2
    screened = [id_ for id_, n in most.items() if n == 1]
    assert len(screened) > 10


@pytest.mark.parametrize(
    ("cases", "rollouts", "gate"),
    [(50, None, "race"), (50, 2000, "race"), (50, 100, "strict"), (12, None, "strict")],
)
def test_the_gate_is_a_race_where_one_can_be_held(
    cases: int, rollouts: int | None, gate: str, tmp_path: Path
):
    def evaluate(candidate: kept.Candidate, case: int) -> float:
        return 0.5

    result = kept.optimize(
        "a",
        evaluate,
        list(range(cases)),
        proposers=["b"],
        bounds=(0, 1),
        budget=kept.Budget(max_iterations=1, max_rollouts=rollouts),
        home=tmp_path,
    )
    with kept.read_run(result.folder) as run:
        assert run.state.settings.gate == gate


def test_a_run_that_goes_on_has_the_gate_that_it_began_with(tmp_path: Path):
    def evaluate(candidate: kept.Candidate, case: int) -> float:
        return 0.5

    def sit(rollouts: int, resume: str | None, **more: object) -> kept.Result:
        return kept.optimize(
            "a",
            evaluate,
            CASES,
            proposers=["b"],
            bounds=(0, 1),
            budget=kept.Budget(max_rollouts=rollouts),
            home=tmp_path,
            resume=resume,
            **more,  # pyright: ignore[reportArgumentType] # by name
        )

    sit(100, None)
    went_on = sit(2000, "last")
    assert went_on.state.settings.gate == "strict", "2000 would be enough for a race"
    assert went_on.spend.rollouts <= 100
    with pytest.raises(kept.KeptError, match="gate"):
        sit(2000, "last", gate="race")


def test_a_run_without_a_limit_on_rollouts_asks_for_two_proofs_at_most(tmp_path: Path):
    world = Noisy()

    def propose(brief: kept.Brief) -> kept.Proposal:
        # whole texts with nothing in common: none can be put together with another
        return kept.Proposal((kept.Write("text", f"quite another text, number {brief.step}\n"),))

    result = kept.optimize(
        "seed\n",
        world.evaluate,
        CASES,
        proposers=[propose],
        bounds=(0, 1),
        budget=12,
        home=tmp_path,
    )
    proofs = [s for s in result.state.history if "alpha_promote" in s.verdict.numbers]
    assert len(proofs) <= 2
    assert result.state.ledger.promotions <= 2
