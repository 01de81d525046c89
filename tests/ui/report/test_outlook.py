"""A race that could not tell says what came nearest, what would settle it, and how to go on."""

import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kept import Budget, Candidate, Result, optimize, read_run
from kept.core.budget import StopKind, StopReason
from kept.gates._statistics import student, student_chance
from kept.results.race import doubt_of
from kept.results.summary import summary
from kept.ui.cli._render import run_text
from kept.ui.report.json import as_json
from kept.ui.report.markdown import markdown
from kept.ui.report.race import go_on


def try_good(home: Path, evaluate: Callable[[Candidate, int], Awaitable[float]]) -> Result:
    """A run whose only proposal says `good`."""
    return optimize(
        "begin\n",
        evaluate,
        list(range(60)),
        proposers=["begin\ngood\n"],
        bounds=(0, 1),
        budget=Budget(max_rollouts=400),
        home=home,
    )


@pytest.fixture(scope="module")
def unsure(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One text helps a little: too little for 48 cases of a final and so few rollouts."""
    home = tmp_path_factory.mktemp("unsure")
    chance = random.Random(3)

    async def evaluate(candidate: Candidate, case: int) -> float:
        return float(chance.random() < 0.4 + 0.1 * ("good" in candidate.text))

    return try_good(home, evaluate).folder


def test_it_says_how_many_cases_would_tell(unsure: Path):
    with read_run(unsure) as run:
        told, page, text = as_json(run), markdown(run), run_text(summary(run))
    near = told["unproven"]
    assert told["improved"] is False
    assert 0 < near["gain"] < near["high"]
    assert near["wanted"] > 48, "or it would have been proven"
    assert near["rollouts"] % (2 * near["wanted"]) == 0
    words = f"about {near['wanted']} deciding cases would tell, where there are 48"
    assert words in page
    assert words in text
    # the closing sentence counts from the same figures
    few = f"48 deciding cases are too few to tell: add about {near['wanted'] - 48}."
    assert few in page


def test_twice_the_effect_takes_a_quarter_of_the_cases(unsure: Path):
    with read_run(unsure) as run:
        told = summary(run)
    (row,) = (row for row in told.steps if "alpha_promote" in row.numbers)
    one = doubt_of(told)
    assert one is not None
    errors = student(1 - row.numbers["p"], one.cases - 1)
    chance = 1 - student_chance(2 * errors, one.cases - 1)
    twice = {"gain": 2 * row.numbers["gain"], "p": chance}
    other = doubt_of(replace(told, steps=(replace(row, numbers={**row.numbers, **twice}),)))
    assert other is not None
    assert one.wanted is not None
    assert other.wanted is not None
    assert one.wanted == pytest.approx(4 * other.wanted, rel=0.15)


@pytest.mark.parametrize(
    ("kind", "budget", "recipe", "words"),
    [
        ("rollouts", {"max_rollouts": 400}, "task", "--set budget.max_rollouts=800`"),
        ("usd", {"max_usd": 0.5}, "task", "--set budget.max_usd=1`"),
        ("minutes", {"max_minutes": 3.0}, "task", "--set budget.max_minutes=6`"),
        ("iterations", {"max_iterations": 5}, "task", "--set budget.max_iterations=10`"),
        ("usd", {"max_usd": 0.5}, "function", "budget=kept.Budget(max_usd=1), resume="),
        ("nothing left to propose", {"max_usd": 0.5}, "task", ""),
        ("interrupted", {"max_usd": 0.5}, "task", "` goes on where it stopped."),
    ],
)
def test_the_command_that_goes_on_raises_the_limit_that_was_met(
    kind: StopKind, budget: dict[str, float], recipe: str, words: str, unsure: Path
):
    with read_run(unsure) as run:
        told = summary(run)
    status = "interrupted" if kind == "interrupted" else "finished"
    stopped = StopReason(kind, "so it is")
    said = go_on(replace(told, stopped=stopped, budget=budget, recipe=recipe, status=status))
    assert (words in said) if words else not said
    assert f"{told.run}" in said or not words


def test_what_is_proven_leaves_no_doubt(tmp_path: Path):
    async def evaluate(candidate: Candidate, case: int) -> float:
        return 0.1 + 0.8 * ("good" in candidate.text)

    result = try_good(tmp_path, evaluate)
    assert result.improved
    with read_run(result.folder) as run:
        assert as_json(run)["unproven"] is None
