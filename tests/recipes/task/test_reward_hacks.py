"""Decoys that outscore an honest change, each refused by the guard it was made for.

The scorer is a fool on purpose: it counts the words it likes. Every hack pleases it, and only what
stands between the proposer and the scorer keeps them out.
"""

import asyncio
import json
from pathlib import Path

import pytest

from kept.core.artifact import Candidate
from kept.core.state import State
from kept.recipes.task.compile import compile_task
from kept.run import start
from kept.store.home import Home
from kept.store.reader import Run

SEED = """# Summarise

Read the report and write a summary of at most five sentences.

## Steps

1. Name the customer, the product and the date.
2. Quote figures as they stand in the report.

## Limits

Say so where the report contradicts itself. Never guess a figure.
"""
GOLD = [
    "The pump failed on Monday because nobody had opened the valve behind the boiler.",
    "Three crates of lamps arrived wet and the courier refused to sign for them.",
    "Our auditor found two invoices with one number, both paid in the same week.",
    "A storm took the roof of hall four and the stock below it was moved by hand.",
    "Sales of the green model doubled after the shop in Graz put it in its window.",
    "The new driver took the wrong ferry and delivered everything a day too late.",
    "Nine customers asked for a refund since the zip of the blue bag does not hold.",
    "Rain stopped the work on the bridge, so the lorries went through the village.",
    "The supplier from Porto sent cork instead of felt and wants to keep the money.",
    "A mouse ate the cable of the scales, which is why all weights were estimates.",
]
HACKS = {
    "a-longer": SEED + "\n".join(f"Mind rule {n}: be faithful to part {n}." for n in range(80)),
    "b-stuffed": SEED + "Faithful, concise, complete. " * 10,
    "c-dropped": SEED[: SEED.index("## Limits")] + "Be faithful, concise, complete.\n",
    "d-copied": SEED + f"Be faithful. For example: {GOLD[5]}\n",
    "e-honest": SEED.replace("five sentences", "five sentences, faithful and concise"),
}
TASK = """\
artifacts: {include: [SKILL.md]}
runner: {command: "true"}
scorer: {type: python, function: "fool:count"}
objective: {primary_metric: score, direction: maximize}
proposers: [{kind: variants, files: ["hacks/*.md"]}]
budget: {max_iterations: 20}
cases: {file: cases.jsonl}
width: 1
"""
GUARDS = "guards: {length: {max_growth: 3.0}, stuffing: {}, sections: {keep: all}}\n"
FOOL = """
import re
def count(candidate):
    text = candidate["SKILL.md"].lower()
    return len(re.findall("faithful|concise|complete", text)) + 5 * ("limits" not in text)
"""


def write(folder: Path, guards: str) -> Path:
    (folder / "hacks").mkdir()
    (folder / "SKILL.md").write_text(SEED)
    (folder / "fool.py").write_text(FOOL)
    (folder / "task.yaml").write_text(TASK + guards)
    for name, text in HACKS.items():
        (folder / "hacks" / f"{name}.md").write_text(text)
    rows = ({"id": f"r-{n}", "report": f"Report {n}.", "gold": gold} for n, gold in enumerate(GOLD))
    (folder / "cases.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / "task.yaml"


def run(path: Path) -> tuple[State, Candidate]:
    plan = compile_task(path).plan
    folder, state = asyncio.run(start(plan, Home(path.parent / ".kept")))
    found = Run(folder)
    try:
        return state, found.best
    finally:
        found.close()


def verdicts(state: State) -> dict[str, tuple[str, str, str]]:
    """Outcome, code and reason by the name of the variant."""
    return {
        step.proposal.why.rpartition("/")[2].removesuffix(".md"): (
            step.verdict.outcome,
            step.verdict.code,
            step.verdict.reason,
        )
        for step in state.history
        if step.proposal is not None
    }


@pytest.mark.slow
def test_every_hack_is_refused_by_name_and_the_honest_change_is_kept(tmp_path: Path):
    state, best = run(write(tmp_path, GUARDS))
    told = verdicts(state)
    assert told["a-longer"] == (
        "discard",
        "guard",
        "guard length: 857 tokens, 15.0 times the seed's 57, 3 times allowed",
    )
    assert told["b-stuffed"] == (
        "discard",
        "guard",
        "guard stuffing: SKILL.md: `faithful`, `concise`, `complete` take 56% of the content"
        " words, 25% allowed",
    )
    assert told["c-dropped"] == (
        "discard",
        "guard",
        "guard sections: SKILL.md lost its section `Limits`",
    )
    outcome, code, reason = told["d-copied"]
    assert (outcome, code) == ("discard", "guard")
    assert reason.startswith("guard copy: SKILL.md:13 holds text of the ")
    assert reason.endswith(" case `r-5`")
    assert told["e-honest"][0] == "keep"
    assert best.texts["SKILL.md"] == HACKS["e-honest"]
    # the seed and the honest change, and nothing was spent on the others
    assert state.spend.rollouts == 10


@pytest.mark.slow
def test_without_guards_the_hacks_win(tmp_path: Path):
    state, best = run(write(tmp_path, "guards: {copy: false}\n"))
    told = verdicts(state)
    assert told["a-longer"][0] == "keep"
    assert told["e-honest"][0] == "discard"
    assert best.texts["SKILL.md"] == HACKS["a-longer"]


@pytest.mark.slow
def test_the_copy_guard_stands_by_default_where_there_are_cases(tmp_path: Path):
    plan = compile_task(write(tmp_path, "")).plan
    assert [guard.name for guard in plan.guards] == ["copy"]
    plan = compile_task(tmp_path / "task.yaml", ["guards.copy=false"]).plan
    assert plan.guards == ()


PRUNE = """\
artifacts: {include: [notes.txt]}
runner: {command: "true"}
scorer: {type: rules, rules: [{kind: tokens, name: length, max: 1000}]}
objective: {primary_metric: length, direction: minimize}
proposers: [{kind: prune, units: [line]}]
budget: {max_iterations: 20}
width: 2
"""


@pytest.mark.slow
def test_removals_that_are_each_fine_do_not_empty_a_file_together(tmp_path: Path):
    (tmp_path / "task.yaml").write_text(PRUNE)
    (tmp_path / "notes.txt").write_text("one\ntwo\n")
    state, best = run(tmp_path / "task.yaml")
    first, second, *_ = state.history
    assert first.verdict.outcome == "keep"
    # it was proposed beside the first, and judged on what that one left
    assert second.incumbent == first.candidate
    assert (second.verdict.outcome, second.verdict.code) == ("discard", "guard")
    assert second.verdict.reason == "guard empty: nothing would be left of notes.txt"
    assert best["notes.txt"] in ("one\n", "two\n")


def test_a_task_without_cases_has_nothing_to_copy(tmp_path: Path):
    path = write(tmp_path, "")
    path.write_text(path.read_text().replace("cases: {file: cases.jsonl}\n", ""))
    assert compile_task(path).plan.guards == ()
