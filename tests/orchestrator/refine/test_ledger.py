"""The ledger of findings: given, fixed, still open, new, iteration by iteration."""

import json
from pathlib import Path
from typing import Any

import pytest

from kept.orchestrator.refine.attempt import are_alike, main_words
from tests.recipes.refine.world import Attempted, World, world

SHORT = "too short"
"""A defect of the seed run that tests make up, beside another."""


def _session(of: World) -> dict[str, Any]:
    path = of.seed / "refinement_sessions" / f"{of.asked.session}.json"
    return json.loads(path.read_text())


def _fates(told: dict[str, Any]) -> dict[str, list[tuple[int, bool, str]]]:
    return {
        row["finding"].partition(" (")[0]: [
            (one["k"], one["given"], one["fate"]) for one in row["iterations"]
        ]
        for row in told["findings"]
    }


def test_each_finding_is_followed_over_the_iterations(tmp_path: Path):
    it = world(
        tmp_path,
        Attempted(0.8, "# One\n", defects=(SHORT, "no summary")),
        Attempted(0.6, "# Two\n", defects=("no summary", "wrong year")),
        Attempted(0.9, "# Three\n", defects=("wrong  YEAR",)),
    )
    it.start()
    told = _session(it)
    fates = _fates(told)
    assert fates[SHORT] == [(1, True, "still open"), (2, True, "fixed"), (3, True, "fixed")]
    assert fates["no summary"] == [(1, False, "new"), (2, True, "still open"), (3, True, "fixed")]
    # iteration 3 started from the first again, so that it was not given what the second broke
    assert fates["wrong year"] == [(2, False, "new"), (3, False, "new")]
    # and what the seed run had besides, iteration 1 has fixed
    assert fates["no sources"][0] == (1, True, "fixed")
    by_name = {row["finding"].partition(" (")[0]: row["open_in_best"] for row in told["findings"]}
    assert (by_name[SHORT], by_name["no summary"], by_name["wrong year"]) == (False, False, True)


def test_a_defect_that_a_critic_puts_in_other_words_is_still_open(tmp_path: Path):
    first = ("The growth figure is missing from the summary", "No sources named", "too long")
    again = ("The summary lacks a growth figure", "Sources are not named", "too short")
    it = world(
        tmp_path,
        Attempted(0.7, "# One\n", defects=first),
        Attempted(0.6, "# Two\n", defects=again),
        Attempted(0.5, "# Three\n", defects=first[:1]),
    )
    it.start()
    fates = _fates(_session(it))
    still = [(1, False, "new"), (2, True, "still open")]
    assert fates[first[0]] == [*still, (3, True, "still open")]
    assert fates[first[1]] == [*still, (3, True, "fixed")]
    assert fates["too long"][1] == (2, True, "fixed")
    assert fates["too short"] == [(1, True, "fixed"), (2, False, "new")]
    assert not {again[0], again[1]} & fates.keys()
    # nor is the manager told that the second attempt broke what was wrong before
    path = it.asked.root / "iter_3" / "gradient_input.json"
    assert "[info] too short" in (broke := json.loads(path.read_text())["broke"])
    assert not any("growth" in one or "ources" in one for one in broke)


def test_refusals_by_critics_of_one_run_are_one_finding(tmp_path: Path):
    """Each names the defects, and the worker: the same defects were counted once more for each."""
    it = world(tmp_path, Attempted(0.5, "# One\n", defects=("broken table",)), iterations=1)
    it.start()
    told = _session(it)["findings"]
    new = [row["finding"] for row in told if row["iterations"][0]["fate"] == "new"]
    assert new == ["broken table (report.md)"], "the seed was refused by critics as well"
    refused = [row for row in told if "refused by critique" in row["finding"]]
    assert [row["iterations"][0]["fate"] for row in refused] == ["still open"]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("No sources named", "Sources are not named", True),
        ("Missing summary", "The report lacks a summary", False),
        ("The report has no summary", "The report lacks a summary.", True),
        ("Add a table of prices", "A table of prices is missing", True),
        ("Table 1 has no heading", "Table 2 has no heading", False),
        ("The price in row is wrong", "The price in row 3 is wrong", False),
        ("Growth of 1.25 is not cited", "Growth of 1.5 is not cited", False),
        ("The summary is too long", "The summary is too short", False),
        ("wrong year", "wrong month", False),
        ("it is not", "there are none", False),
        ("尾部缺少总结", "尾部缺少总结", True),
    ],
)
def test_defects_are_one_by_their_main_words_and_numbers(one: str, other: str, same: bool):
    assert are_alike(main_words(one), main_words(other)) is same
    assert are_alike(main_words(other), main_words(one)) is same


def test_an_iteration_that_left_nothing_has_fixed_nothing(tmp_path: Path):
    it = world(tmp_path, Attempted(text=None), Attempted(0.9, defects=("other",)), iterations=2)
    it.start()
    fates = _fates(_session(it))
    assert {entry for entries in fates.values() for entry in entries[:1] if entry[0] == 1} == {
        (1, True, "still open")
    }
    assert fates[SHORT][1] == (2, True, "fixed")


def test_gradient_input_holds_all_that_the_manager_is_told(tmp_path: Path):
    it = world(
        tmp_path,
        Attempted(0.8, "# One\n", defects=(SHORT,)),
        Attempted(0.5, "# Two\n", defects=(SHORT, "wrong year")),
        Attempted(text=None),
        iterations=4,
    )
    it.start()
    for k in (1, 2, 3, 4):
        path = it.asked.root / f"iter_{k}" / "gradient_input.json"
        told = json.loads(path.read_text())
        heard = next(text for who, text in it.plays[k].heard if who == "manager")
        assert told["prefix"] in heard and "REFINEMENT CONTEXT" in told["prefix"]
        assert told["iteration"] == k
        # every line of the prefix that says what is wrong is there by itself, too
        values = json.dumps({name: told[name] for name in told if name != "prefix"})
        listed = [line for line in told["prefix"].splitlines() if line.startswith("  - ")]
        for line in listed:
            words = line.removeprefix("  - ").partition("] ")[2] or line.removeprefix("  - ")
            assert words.split(" (")[0].split(": +")[0].partition(": ")[0] in values, line
        assert bool(told["broke"]) == (k > 2), k
    broke = json.loads((it.asked.root / "iter_3" / "gradient_input.json").read_text())["broke"]
    assert "[info] wrong year" in broke and any("part of the loss" in one for one in broke)
    last = json.loads((it.asked.root / "iter_4" / "gradient_input.json").read_text())["broke"]
    assert "left no deliverable" in last[-1]
