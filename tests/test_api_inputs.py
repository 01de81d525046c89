"""What `kept.optimize` refuses, and in which words."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import kept
from kept.cli.main import cli

CASE = kept.Case("a", 1)


def evaluate(candidate: kept.Candidate, case: object = None) -> float:
    return 1.0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"cases": []}, "`cases` is empty"),
        ({"cases": kept.Cases(train=(CASE,))}, "there are no holdout cases"),
        ({"cases": kept.Cases((CASE,), (CASE,))}, "`a` stands in train and again in holdout"),
        ({"cases": [1, 2], "split": "1:0:1"}, "there are no holdout cases"),
        ({"cases": [1, 2], "split": "half"}, "`half` is not a split"),
        ({"cases": [{"id": 1}, {"id": 1}]}, "case ids stand more than once: 1"),
        ({"proposers": []}, "there is no proposer"),
        ({"artifact": {}}, "the artifact has no texts"),
        ({"artifact": "half \ud83d"}, "`text` is not a text that can be written"),
        ({"artifact": Path("/nowhere/prompt.md")}, "cannot read /nowhere/prompt.md"),
        ({"artifact": {"a": "x", "b": "y"}, "proposers": ["z"]}, "an artifact with one text"),
        ({"resume": "nothing"}, "no run `nothing`"),
        ({"artifact": 3}, "the artifact is 3, not a text"),
        ({"evaluate": "evaluate"}, "`evaluate` is 'evaluate', not a function"),
        ({"proposers": evaluate}, "`proposers` is not a list"),
        ({"gate": "stric"}, "`gate` is 'stric', not a gate"),
        ({"budget": "5"}, "`budget` is '5', not a budget"),
        ({"direction": "Maximize"}, "`direction` is 'Maximize', not a direction"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_runs(
    given: dict[str, Any], message: str, tmp_path: Path
):
    good: dict[str, Any] = {"artifact": "seed", "evaluate": evaluate, "proposers": ["other"]}
    call: dict[str, Any] = {**good, "home": tmp_path, **given}
    with pytest.raises(kept.SetupError, match=message):
        kept.optimize(**call)
    assert not list(tmp_path.glob("runs/*"))


def test_a_result_counts_proposals_and_not_the_turns_of_a_dry_proposer(tmp_path: Path):
    result = kept.optimize("a", size, proposers=["aa", ""], home=tmp_path, width=4)
    assert len(result.state.closed) > 2
    assert str(result) == "1 → 2 in 2 proposals, 1 kept, 3 rollouts"


def size(candidate: kept.Candidate) -> float:
    return float(len(candidate.text))


def test_one_proposal_is_told_as_one(tmp_path: Path):
    result = kept.optimize("a", size, proposers=["aa"], home=tmp_path)
    assert str(result) == "1 → 2 in 1 proposal, 1 kept, 2 rollouts"


def test_a_result_has_the_spend_that_show_and_runs_tell_though_steps_are_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("KEPT_HOME", str(tmp_path))
    budget = kept.Budget(max_failures=1)
    texts = ["bad", "aa", "aaa"]
    result = kept.optimize("a", unless_bad, proposers=texts, budget=budget, width=3)
    assert result.state.open
    assert result.spend.rollouts > result.state.spend.rollouts
    shown = json.loads(CliRunner().invoke(cli, ["show", "--json"]).stdout)["spend"]
    (listed,) = json.loads(CliRunner().invoke(cli, ["runs", "--json"]).stdout)
    assert result.spend.rollouts == shown["rollouts"] == listed["rollouts"]
    assert f"{result.spend.rollouts} rollouts" in str(result)


def unless_bad(candidate: kept.Candidate) -> float:
    if candidate.text == "bad":
        raise ValueError(candidate.text)
    time.sleep(0.02)  # so that others are under way when it is over
    return float(len(candidate.text))
