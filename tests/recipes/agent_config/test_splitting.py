"""Which cases an optimizer of an agent learns from, decides by, and never sees."""

from pathlib import Path

import pytest

from kept.core.case import SPLITS, Cases
from kept.recipes.agent_config.spec.cases import TestCaseSpec
from kept.recipes.agent_config.spec.read import ReadAgent, read_agent
from kept.recipes.agent_config.splits import split_warnings, splits_of
from tests.recipes.agent_config.spec.optimizers import OWN, read_optimizer, rows, write_optimized

BASE = "loss: {equality: 1}\naxes: {demos: {}}\n"
FILES = "train_cases_file: data/train.yaml\nholdout_cases_file: data/holdout.yaml\n"


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


def splits(read: ReadAgent) -> tuple[Cases, tuple[TestCaseSpec, ...]]:
    found = splits_of(read, read_optimizer(read))
    read.source.check()
    assert found is not None
    return found


def names(folder: Path, extra: str, **files: str) -> dict[str, list[str]]:
    read = read_agent(write_optimized(folder, BASE + extra, **files))
    cases, specs = splits(read)
    assert [spec.name for spec in specs] == [c.id for s in SPLITS for c in cases.of(s)]
    return {split: [case.id for case in cases.of(split)] for split in SPLITS}


def test_an_agents_own_cases_are_shared_out_by_the_seed(tmp_path: Path):
    found = names(tmp_path, "")
    assert [len(found[split]) for split in SPLITS] == [6, 10, 4]
    assert found == names(tmp_path, 'split: "3:5:2"\n')
    assert found != names(tmp_path, "seed: 7\n")
    assert sorted(name for split in SPLITS for name in found[split]) == sorted(
        f"own{n}" for n in range(20)
    )


def test_files_bring_their_own_cases_and_a_sealed_test(tmp_path: Path):
    found = names(tmp_path, f"{FILES}test_cases_file: data/test.yaml\n")
    assert found["train"] == [f"t{n}" for n in range(8)]
    assert found["holdout"] == [f"h{n}" for n in range(8)]
    assert found["test"] == [f"z{n}" for n in range(4)]
    assert names(tmp_path, FILES)["test"] == []


def test_own_cases_may_be_beside_a_sealed_file(tmp_path: Path):
    found = names(tmp_path, "test_cases_file: data/test.yaml\n")
    assert [len(found[split]) for split in SPLITS] == [8, 12, 4]
    assert found["test"] == [f"z{n}" for n in range(4)]


def test_unnamed_cases_of_two_files_have_names_of_their_own(tmp_path: Path):
    train = "".join(f"- {{input: add {n}}}\n" for n in range(6))
    holdout = "".join(f"- {{input: subtract {n}}}\n" for n in range(6))
    files = {"data__a_dot_yaml": train, "data__b_dot_yaml": holdout}
    found = names(
        tmp_path, "train_cases_file: data/a.yaml\nholdout_cases_file: data/b.yaml\n", **files
    )
    assert (found["train"][0], found["holdout"][5]) == ("a-train-1", "b-holdout-6")


def test_holdout_may_be_skipped_with_one_file(tmp_path: Path):
    extra = "train_cases_file: data/train.yaml\nholdout_eval_policy: skip\ngate: sigma\n"
    found = names(tmp_path, extra)
    assert (len(found["train"]), found["holdout"]) == (8, [])


def test_cases_that_are_nearly_the_same_are_warned_of(tmp_path: Path):
    one = "- {name: a, input: what is the sum of one and two and three?}\n"
    other = "- {name: b, input: What is the sum of one and two and three!}\n"
    files = {
        "data__train_dot_yaml": rows(f"t{n}" for n in range(3)) + one,
        "data__holdout_dot_yaml": rows(f"h{n}" for n in range(6)) + other,
    }
    read = read_agent(write_optimized(tmp_path, BASE + FILES, **files))
    cases, _ = splits(read)
    assert split_warnings(cases) == ("case `a` (train) and case `b` (holdout) are the same",)


def test_copies_among_own_cases_are_warned_of_and_no_error(tmp_path: Path):
    twice = OWN + OWN.replace("test_cases:\n", "").replace("name: own", "name: again")
    read = read_agent(write_optimized(tmp_path, BASE, own=twice))
    cases, _ = splits(read)
    assert any("are the same" in warning for warning in split_warnings(cases))
