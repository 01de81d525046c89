"""Whole runs among texts that somebody wrote: the best of them is promoted, or none."""

import asyncio
import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

import kept
from kept.core.budget import Budget
from kept.core.near_misses import AHEAD
from kept.core.plan import Plan
from kept.core.schedules.round_robin import Pooling
from kept.gates.final import Final
from kept.gates.race import Race
from kept.proposers.variants import Variant, Variants
from kept.recipes.race_choice import with_race
from kept.testing import MemoryJournal, sit, small_plan
from tests.engine.worlds import make_final

RATES = {"seed": 0.45, "worse": 0.3, "alike": 0.45, "good": 0.65, "best": 0.75}


def chance(*what: object) -> float:
    return int(hashlib.sha256(repr(what).encode()).hexdigest()[:12], 16) / 16**12


@dataclass
class World:
    """Texts that pass so often, more on easy cases; every rollout is a draw of its own."""

    number: int
    drawn: int = 0

    async def evaluate(self, candidate: kept.Candidate, case: int) -> float:
        self.drawn += 1
        rate = RATES[candidate.text.strip()] + 0.4 * (chance(case) - 0.5)
        return float(chance(self.number, candidate.text, case, self.drawn) < rate)


def run(path: Path, number: int, texts: tuple[str, ...], gate: Race | None = None) -> kept.Result:
    return kept.optimize(
        "seed",
        World(number).evaluate,
        list(range(100)),
        proposers=list(texts),
        gate=gate or "race",
        bounds=(0, 1),
        budget=Budget(max_rollouts=3000),
        workers=1,
        home=path,
    )


TEXTS = ("worse", "good", "alike", "best")
RUNS = 20


@pytest.mark.slow
def test_the_best_of_the_texts_is_promoted_and_without_a_final_often_another(tmp_path: Path):
    def found(gate: Race) -> int:
        ends = [run(tmp_path / str(n), n, TEXTS, gate).best.text for n in range(RUNS)]
        return sum(end == "best" for end in ends)

    assert found(Race()) >= 0.9 * RUNS
    assert found(Race(final=Final(most=0))) <= 0.75 * RUNS


@pytest.mark.slow
def test_among_texts_that_are_no_better_nothing_is_promoted(tmp_path: Path):
    ends = [run(tmp_path / str(n), n, ("worse", "alike")).best.text for n in range(RUNS)]
    assert sum(end != "seed" for end in ends) <= 1


def test_a_run_that_ends_in_a_final_says_so(tmp_path: Path):
    result = run(tmp_path, 1, TEXTS)
    told = [step.verdict for step in result.state.history]
    assert result.best.text == "best"
    (won,) = (verdict for verdict in told if verdict.outcome == "keep")
    assert won.best
    assert "in the final: +0." in won.reason
    assert told[-1].code == "claim"
    assert result.state.stopped is not None
    assert result.state.stopped.kind == "nothing left to propose"
    assert result.state.spend.rollouts <= 3000
    with kept.read_run(result.folder) as past:
        jobs = [job for _, job, _ in past.rollouts()]
    assert {job.purpose for job in jobs} == {"promote", "test"}


def plan_of(*texts: dict[str, str], budget: Budget | None = None) -> Plan:
    plan, runner, _ = make_final(1)
    variants = Variants(tuple(Variant(text, str(n)) for n, text in enumerate(texts)))
    made = replace(small_plan(runner, variants), cases=plan.cases, gate=Race())
    return replace(made, budget=budget or Budget())


def among(plan: Plan) -> int:
    made = with_race(plan)
    assert isinstance(made.gate, Race)
    assert isinstance(made.schedule, Pooling)
    assert made.schedule.final == (made.gate.final.among > 0)
    return made.gate.final.among


def test_a_final_is_held_among_texts_that_take_each_others_place_and_no_others():
    one, two, three = {"text": "a"}, {"text": "b"}, {"text": "c", "other": "d"}
    assert among(plan_of(one, two, three)) == 3
    assert among(plan_of(one, {"other": "d"})) == 0, "these two could be put together"
    mixed, other = plan_of(one, two), Variants((Variant({"other": "d"}, "d"),), "more")
    edits = replace(mixed, proposers=(*mixed.proposers, Learns("learns")))
    assert among(edits) == 0, "somebody reads train cases"
    twice = replace(mixed, proposers=(*mixed.proposers, other))
    assert among(twice) == 0, "of another artifact"


@dataclass(frozen=True)
class Learns:
    """Reads its brief."""

    name: str
    serial: bool = False

    async def propose(self, brief: kept.Brief, scope: kept.Scope) -> kept.Proposal:
        return kept.Proposal((kept.Append("text", str(brief.train)),))


def test_a_final_is_held_only_where_it_can_be_paid():
    texts = [{"text": str(n)} for n in range(6)]
    assert among(plan_of(*texts)) == 6
    enough, few = (plan_of(*texts, budget=Budget(max_rollouts=n)) for n in (400, 90))
    assert among(enough) == 6
    made = with_race(enough)
    assert isinstance(made.gate, Race)
    final = made.gate.final
    assert final.first(11) + made.reserve <= 400
    assert among(few) == 0
    by_call = plan_of(*texts, budget=Budget(max_usd=1.0))
    assert among(by_call) == 0, "what a rollout costs is not known before"


def test_who_wins_does_not_hang_on_who_answers_first():
    ends, seeds = set[tuple[str, int]](), set[str]()
    for width in (1, 3, 5):
        for _ in range(3):
            plan, _, _ = make_final(width, 5, 6)
            state = asyncio.run(sit(plan, MemoryJournal()))
            told = sum(AHEAD in step.verdict.numbers for step in state.history)
            ends.add((state.best, told))
            seeds.add(state.seed)
    ((best, told),) = ends
    assert best not in seeds
    assert told == 1, "the first that is taken up hears of another"


def test_a_seed_that_fails_where_a_failure_has_no_value_ends_the_run_as_an_error(tmp_path: Path):
    async def evaluate(candidate: kept.Candidate, case: int) -> float:
        if candidate.text == "seed" and case % 2:
            raise ValueError("it fell over")
        return float(case)

    budget = Budget(max_rollouts=3000)
    texts = ["one", "two"]
    with pytest.raises(kept.RunError, match="no bounds to count them by"):
        kept.optimize(
            "seed", evaluate, list(range(40)), proposers=texts, gate="race", budget=budget,
            home=tmp_path,
        )  # fmt: skip
