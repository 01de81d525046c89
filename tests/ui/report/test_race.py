"""The report of a race leads with what is sure, and says how it came to be."""

import random
from dataclasses import replace
from pathlib import Path

import pytest

from kept import Append, Brief, Budget, Candidate, Proposal, optimize, read_run
from kept.gates.race import Race
from kept.results.summary import summary
from kept.ui.report.format import headline_words
from kept.ui.report.json import as_json
from kept.ui.report.markdown import markdown

CASES = [{"id": f"c{n}", "question": f"what is {n * 7919 % 1000}?"} for n in range(60)]


def run_race(home: Path, gate: Race) -> Path:
    """A race in which two kinds of edits help, and others do nothing."""
    chance = random.Random(7)

    async def evaluate(candidate: Candidate, case: object) -> float:
        good = sum(f"good {n}\n" in candidate.text for n in range(2))
        return float(chance.random() < 0.2 + 0.35 * good)

    def propose(brief: Brief) -> Proposal:
        words = ("good 0", "good 1", f"idle {brief.step}")
        return Proposal((Append("text", f"{words[brief.step % 3]}\n"),))

    optimize(
        "begin\n",
        evaluate,
        CASES,
        proposers=[propose],
        gate=gate,
        bounds=(0, 1),
        budget=Budget(max_rollouts=5000, max_iterations=12),
        home=home,
    )
    (folder,) = (home / "runs").iterdir()
    return folder


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_race(tmp_path_factory.mktemp("race"), Race(pool_most=2))


def test_what_was_proven_without_a_race_is_told_as_kept(tmp_path: Path):
    with read_run(run_race(tmp_path, Race())) as run:
        page, told = markdown(run), as_json(run)
    assert "| better on these cases, beyond noise? | 30 holdout | not asked apart |" in page
    assert "| better for cases like these? | 30 holdout, new draws | proven: +0." in page
    assert (told["race"]["raced"], told["race"]["won"], told["race"]["kept"]) == (0, 0, 1)
    (row,) = (row for row in told["closed"] if row["verdict"] == "keep")
    assert row["value"] > 0.2


def test_the_seed_of_a_pool_that_is_proven_at_once_has_its_score(tmp_path: Path):
    with read_run(run_race(tmp_path, Race())) as run:
        page, shown = markdown(run), run.state.evaluations[run.state.seed]
    assert "decide" not in {evaluation.purpose for evaluation in shown}
    (proof,) = (evaluation for evaluation in shown if evaluation.purpose == "promote")
    assert proof.loss is not None
    value = f"{-proof.loss:.6g}"
    (seed,) = (line for line in page.splitlines() if line.startswith("| seed |"))
    assert seed.split("|")[3].strip() == value
    assert "no score" not in page


def test_it_leads_with_the_claim_and_says_what_was_asked_of_which_cases(run_folder: Path):
    with read_run(run_folder) as run:
        page = markdown(run)
    lines = page.splitlines()
    assert lines[2].startswith("**Claim**, on 12 cases that nothing was tuned on: +0.")
    rows = [line for line in lines if line.startswith("| ") and line.count("|") == 4]
    asked = {row.split("|")[1].strip(): row.split("|")[2:4] for row in rows}
    assert asked["worth paying for?"][0].strip() == "18 train"
    of, answer = asked["better on these cases, beyond noise?"]
    assert of.strip() == "30 holdout"
    assert "kept" in answer
    assert "of error risked in all" in answer
    assert "proven: +0." in asked["better for cases like these?"][1]
    assert "+0." in asked["by how much?"][1]


def test_its_trajectory_is_on_one_kind_of_draws_and_shows_what_leads(run_folder: Path):
    with read_run(run_folder) as run:
        page, told = markdown(run), as_json(run)
    kept = [row for row in told["closed"] if row["verdict"] == "keep"]
    assert kept
    assert "| leading so far |" in page
    last = f"{kept[-1]['value']:.6g}"
    assert f"| {kept[-1]['step']} | {last} | keep | {last} |" in page
    assert told["race"]["kept"] == len(kept)
    assert told["race"]["risked"] == sum(
        row["numbers"]["alpha"] for row in told["closed"] if "alpha" in row["numbers"]
    )


def test_what_leads_in_a_run_that_was_cut_is_not_told_as_nothing(run_folder: Path):
    """`nothing beat the seed`, though a step was kept and only waited for its proof."""
    with read_run(run_folder) as run:
        told = summary(run)
    led = replace(told, best=told.seed, leading=3, status="interrupted")
    seed = f"{told.metric} {told.seed_value:.6g}"
    assert headline_words(led) == f"nothing is proven yet: step 3 leads, and the seed has {seed}"
    unproven = replace(led, status="finished")
    on = "on 12 test cases"
    assert headline_words(unproven) == f"nothing beat the seed: {seed} {on}", "it had its proof"


def test_a_final_is_told_with_the_cases_that_decided_it(tmp_path: Path):
    chance = random.Random(3)

    async def evaluate(candidate: Candidate, case: object) -> float:
        return float(chance.random() < {"seed": 0.3, "bad": 0.1}.get(candidate.text, 0.8))

    result = optimize(
        "seed",
        evaluate,
        CASES,
        proposers=["good", "bad"],
        gate=Race(),
        bounds=(0, 1),
        budget=Budget(max_rollouts=3000),
        home=tmp_path,
    )
    with read_run(result.folder) as run:
        page, told = markdown(run), as_json(run)
    assert (told["race"]["entered"], told["race"]["finalists"]) == (2, 1)
    asked = "| 18 train and 30 holdout |"
    assert f"| which is the best of them? {asked} 2 alternatives: 1 in the final |" in page
    assert f"| better for cases like these? {asked} proven: +0." in page
