"""Whole runs without cases: what they cost and keep where runs agree, and where they differ."""

import asyncio
import random
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

import kept
from kept.core.artifact import Candidate
from kept.core.budget import Budget
from kept.core.case import Case, implicit_cases
from kept.core.ports import Scope
from kept.core.rollout import Job
from kept.gates.repeats import Repeats
from kept.recipes.gate_choice import MIN_REPEATS
from kept.testing import MemoryJournal, ScriptedProposer, sit, small_plan


def run(path: Path, scores: dict[str, float], *, noise: float = 0.0, **more: object) -> kept.Result:
    """A run that tries each text once; what its evaluator adds is another number every time."""
    drawn = random.Random(f"{sorted(scores)} {noise}")

    async def evaluate(candidate: kept.Candidate) -> float:
        return scores[candidate.text] + noise * drawn.random()

    first, *others = scores
    return kept.optimize(
        first,
        evaluate,
        proposers=others,
        home=path,
        width=1,
        workers=1,
        **more,  # pyright: ignore[reportArgumentType] # by name
    )


TEXTS = {"seed": 0.5, "worse": 0.4, "better": 0.7, "tied": 0.7, "best": 0.9, "last": 0.1}


def test_where_runs_agree_every_verdict_is_that_of_strict(tmp_path: Path):
    repeats = run(tmp_path / "a", TEXTS)
    strict = run(tmp_path / "b", TEXTS, gate="strict")
    assert repeats.state.settings.gate == "repeats"
    told = [[step.verdict for step in one.state.history] for one in (repeats, strict)]
    assert told[0] == told[1]
    assert repeats.best.text == strict.best.text == "best"
    # two more of the seed, one more of each that was kept
    assert repeats.spend.rollouts == strict.spend.rollouts + 2 + 1 * 2
    assert repeats.best_value == strict.best_value


@pytest.mark.parametrize("seed", range(4))
def test_where_runs_differ_and_nothing_is_better_nothing_is_kept(seed: int, tmp_path: Path):
    texts = {f"{seed} {n}": 0.0 for n in range(12)}
    result = run(tmp_path, texts, noise=1.0, bounds=(0, 1))
    assert result.state.keeps == 0
    assert result.state.ledger.varies
    careless = run(tmp_path / "strict", texts, noise=1.0, bounds=(0, 1), gate="strict")
    assert careless.state.keeps, "one run a side keeps noise"


def test_a_gain_beyond_the_noise_is_kept_and_said_to_be_so(tmp_path: Path):
    result = run(tmp_path, {"seed": 0.0, "idle": 0.0, "better": 3.0}, noise=1.0)
    assert result.best.text == "better"
    kept_step = next(step for step in result.state.history if step.verdict.outcome == "keep")
    assert "which differ: odds" in kept_step.verdict.reason
    assert "sign test" in kept_step.verdict.reason


@pytest.mark.parametrize(
    ("rollouts", "gate"), [(MIN_REPEATS, "repeats"), (MIN_REPEATS - 1, "strict")]
)
def test_a_budget_that_cannot_pay_for_a_race_is_strict(rollouts: int, gate: str, tmp_path: Path):
    result = run(tmp_path, TEXTS, budget=kept.Budget(max_rollouts=rollouts))
    assert result.state.settings.gate == gate
    assert result.best.text == "best"


def test_it_can_be_named_where_there_are_no_cases(tmp_path: Path):
    result = run(tmp_path, TEXTS, gate="repeats")
    assert result.state.settings.gate == "repeats"
    assert result.best.text == "best"
    with pytest.raises(kept.SetupError, match="the gate `repeats` is for a run without cases"):
        run(tmp_path, TEXTS, gate="repeats", cases=range(40))
    with pytest.raises(kept.SetupError, match="29 rollouts are too few"):
        run(tmp_path, TEXTS, gate="repeats", budget=kept.Budget(max_rollouts=MIN_REPEATS - 1))


def test_a_resume_with_another_gate_is_refused(tmp_path: Path):
    first = run(tmp_path, TEXTS, budget=2)
    with pytest.raises(kept.JournalError, match="gate changed"):
        run(tmp_path, TEXTS, budget=6, gate="strict", resume=first.run)


@dataclass(frozen=True)
class Told:
    """The seed always says the same; of its challengers the first differs, the second is lucky."""

    async def run(self, job: Job, candidate: Candidate, case: Case, scope: Scope) -> kept.Rollout:
        text = candidate.texts["text"]
        if "first" in text:
            score = float(job.purpose == "decide" and job.repeat == 0)
        elif "lucky" in text:
            # the same long enough to be kept by one run a side, were nothing known of the first
            score = float(job.purpose == "screen" or job.repeat == 0)
        else:
            score = 0.5
        return kept.Rollout(metrics={"score": score})

    async def close(self) -> None:
        pass


@pytest.mark.parametrize("width", [1, 4])
def test_once_runs_differ_no_step_that_is_open_is_decided_by_one_of_them(width: int):
    plan = replace(
        small_plan(
            Told(), *(ScriptedProposer(lines=(line,), name=line) for line in ("first", "lucky"))
        ),
        cases=implicit_cases(),
        gate=Repeats(),
        budget=Budget(max_iterations=2),
        width=width,
    )
    state = asyncio.run(sit(plan, MemoryJournal()))
    first, lucky = state.history
    assert "varies" in first.verdict.numbers
    assert lucky.verdict.outcome == "discard"
    assert "which differ" in lucky.verdict.reason
