import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from kept.core.case import SPLITS, Case
from kept.errors import SetupError, SpecError
from kept.evaluators.environments.base import EnvSettings, ratio_of
from kept.evaluators.environments.datasets import part
from kept.evaluators.environments.qa import SearchQa


def rows(n: int, begin: int = 0) -> list[dict[str, Any]]:
    return [
        {"id": f"q{i}", "question": f"What is number {i}?", "answers": [str(i)]}
        for i in range(begin, begin + n)
    ]


def write(path: Path, given: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(given, indent=1), encoding="utf-8")
    return path


def by_ratio(folder: Path, **more: Any) -> EnvSettings:
    return EnvSettings(name="searchqa", folder=folder, data_path="raw.json", **more)


def by_folder(folder: Path, **more: Any) -> EnvSettings:
    more = {"split_mode": "split_dir", "split_dir": "split", **more}
    return EnvSettings(name="searchqa", folder=folder, **more)


@pytest.mark.parametrize(
    ("n", "counts"), [(2000, (400, 200, 1400)), (10, (2, 1, 7)), (11, (2, 1, 8)), (3, (1, 1, 1))]
)
def test_cases_are_shared_out_by_largest_remainder(
    tmp_path: Path, n: int, counts: tuple[int, int, int]
):
    write(tmp_path / "raw.json", rows(n))
    cases = part(SearchQa(), by_ratio(tmp_path)).cases
    assert tuple(len(cases.of(split)) for split in SPLITS) == counts
    assert len(cases.by_id) == n


def test_the_same_data_and_seed_give_the_same_split(tmp_path: Path):
    write(tmp_path / "raw.json", rows(50))
    first = part(SearchQa(), by_ratio(tmp_path)).cases
    again = part(SearchQa(), by_ratio(tmp_path)).cases
    other = part(SearchQa(), by_ratio(tmp_path, split_seed=43)).cases
    assert first == again
    assert first.train != other.train


def test_copies_of_a_case_go_to_one_split(tmp_path: Path):
    """What is learnt from must not be decided by, under another id."""
    given = rows(40)
    for n in range(10):
        given.append({**given[n], "id": f"copy-of-q{n}"})
    write(tmp_path / "raw.json", given)
    cases = part(SearchQa(), by_ratio(tmp_path)).cases
    place = {case.id: split for split in SPLITS for case in cases.of(split)}
    assert len(place) == 50
    assert all(place[f"q{n}"] == place[f"copy-of-q{n}"] for n in range(10))


@dataclass(frozen=True)
class Numbered(SearchQa):
    """Twins are told by what stands before the dash."""

    def twin(self, case: Case) -> str:
        return case.id.partition("-")[0] if "-" in case.id else ""


def test_what_is_tied_by_copies_and_twins_goes_to_one_split(tmp_path: Path):
    """The copy of one may be the twin of another."""
    named = {"a-1": "one", "b-1": "two", "a-2": "three", "b-2": "one"}
    tied = [{"id": id_, "question": asked, "answers": ["x"]} for id_, asked in named.items()]
    write(tmp_path / "raw.json", [*rows(9), *tied])
    for seed in range(12):
        cases = part(Numbered(), by_ratio(tmp_path, split_seed=seed)).cases
        parts = [{case.id for case in one} for one in (cases.train, cases.holdout, cases.test)]
        assert sorted(map(len, parts)) in ([1, 2, 10], [1, 5, 7], [2, 4, 7])
        assert sum(not one.isdisjoint(named) for one in parts) == 1


def test_a_generated_split_is_written_where_the_seed_says_and_read_back(tmp_path: Path):
    write(tmp_path / "raw.json", rows(20))
    parted = part(SearchQa(), by_ratio(tmp_path))
    folder = parted.write(tmp_path / "out")
    assert folder is not None
    assert folder == tmp_path / "out" / "_generated_splits" / "searchqa_2-1-7_seed42"
    names = sorted(str(one.relative_to(folder)) for one in folder.rglob("*") if one.is_file())
    parts = ["test/items.json", "train/items.json", "val/items.json"]
    assert names == ["split_manifest.json", *parts]
    manifest = json.loads((folder / "split_manifest.json").read_text())
    assert manifest["counts"] == {"train": 4, "val": 2, "test": 14}
    assert (manifest["split_ratio"], manifest["split_seed"]) == ("2:1:7", 42)
    again = part(SearchQa(), by_folder(tmp_path, split_dir=str(folder)))
    assert again.cases == parted.cases
    assert again.write(tmp_path / "other") is None


def test_a_split_is_written_whole_however_few_of_its_cases_are_looked_at(tmp_path: Path):
    """What a limit left out was not written, and a later run without one read back the rest."""
    write(tmp_path / "raw.json", rows(100))
    some = part(SearchQa(), by_ratio(tmp_path, sel_env_num=3, test_env_num=5))
    folder = some.write(tmp_path / "out")
    assert len(some.cases.holdout) == 3
    again = part(SearchQa(), by_folder(tmp_path, split_dir=str(folder)))
    assert again.cases == part(SearchQa(), by_ratio(tmp_path)).cases


def test_a_split_that_is_there_is_left_alone(tmp_path: Path):
    write(tmp_path / "raw.json", rows(20))
    parted = part(SearchQa(), by_ratio(tmp_path, split_output_dir="made"))
    folder = parted.write(tmp_path / "out")
    assert folder is not None
    assert folder == tmp_path / "made"
    before = {one: one.stat().st_mtime_ns for one in folder.rglob("*")}
    assert parted.write(tmp_path / "out") == folder
    assert {one: one.stat().st_mtime_ns for one in folder.rglob("*")} == before
    moved = write(tmp_path / "elsewhere" / "raw.json", rows(20))
    again = replace(by_ratio(tmp_path, split_output_dir="made"), data_path=str(moved))
    assert part(SearchQa(), again).write(tmp_path) == folder, "the same data, under another name"
    assert {one: one.stat().st_mtime_ns for one in folder.rglob("*")} == before


def test_a_folder_with_another_split_is_refused_and_left_alone(tmp_path: Path):
    write(tmp_path / "raw.json", rows(20))
    part(SearchQa(), by_ratio(tmp_path, split_output_dir="made")).write(tmp_path)
    before = (tmp_path / "made" / "train" / "items.json").read_bytes()
    with pytest.raises(SetupError, match="holds a split of other data"):
        part(SearchQa(), by_ratio(tmp_path, split_output_dir="made", split_seed=1))
    assert (tmp_path / "made" / "train" / "items.json").read_bytes() == before


@pytest.mark.parametrize(
    "names", [("train", "val", "test"), ("train", "valid_seen", "valid_unseen")]
)
def test_parts_go_by_either_of_their_names(tmp_path: Path, names: tuple[str, str, str]):
    for n, name in enumerate(names):
        write(tmp_path / "split" / name / "items.json", rows(2, n * 2))
    cases = part(SearchQa(), by_folder(tmp_path)).cases
    assert [case.id for case in cases.train] == ["q0", "q1"]
    assert [case.id for case in cases.holdout] == ["q2", "q3"]
    assert [case.id for case in cases.test] == ["q4", "q5"]


def test_parts_may_be_files(tmp_path: Path):
    write(tmp_path / "split" / "train.json", rows(1))
    lines = "\n".join(json.dumps(row) for row in rows(2, 1))
    (tmp_path / "split" / "val.jsonl").write_text(lines)
    cases = part(SearchQa(), by_folder(tmp_path)).cases
    assert (len(cases.train), len(cases.holdout), len(cases.test)) == (1, 2, 0)


def test_an_id_that_stands_twice_is_named_with_both_lines(tmp_path: Path):
    path = write(tmp_path / "raw.json", [*rows(3), {**rows(1)[0], "question": "Another?"}])
    with pytest.raises(SpecError) as error:
        part(SearchQa(), by_ratio(tmp_path))
    (problem,) = error.value.problems
    assert problem.where == f"{path}:23"
    assert problem.message == f"the id `q0` stands in {path}:2 already"


def test_a_case_in_two_splits_is_named_with_both_places(tmp_path: Path):
    train = write(tmp_path / "split" / "train" / "items.json", rows(2))
    val = write(tmp_path / "split" / "val" / "items.json", [{**rows(1)[0], "id": "new"}])
    with pytest.raises(SpecError) as error:
        part(SearchQa(), by_folder(tmp_path))
    (problem,) = error.value.problems
    assert problem.where == f"{val}:2"
    assert problem.message == f"`new` of val is a copy of what train has in {train}:2"


def test_a_train_size_that_is_not_met_is_an_error(tmp_path: Path):
    write(tmp_path / "raw.json", rows(20))
    with pytest.raises(SpecError, match="400 was expected, and there are 4 train cases"):
        part(SearchQa(), by_ratio(tmp_path, train_size=400))
    assert len(part(SearchQa(), by_ratio(tmp_path, train_size=4)).cases.train) == 4


def test_selection_and_test_are_limited_to_their_first(tmp_path: Path):
    write(tmp_path / "raw.json", rows(100))
    whole = part(SearchQa(), by_ratio(tmp_path)).cases
    some = part(SearchQa(), by_ratio(tmp_path, sel_env_num=3, test_env_num=5)).cases
    assert some.train == whole.train
    assert some.holdout == whole.holdout[:3]
    assert some.test == whole.test[:5]


def test_all_that_is_wrong_with_a_file_is_said_at_once(tmp_path: Path):
    bad: list[Any] = [{"answers": ["x"]}, {"question": "q"}, {"question": "", "answers": "a"}, 7]
    path = write(tmp_path / "raw.json", bad)
    with pytest.raises(SpecError) as error:
        part(SearchQa(), by_ratio(tmp_path))
    said = [str(problem) for problem in error.value.problems]
    assert said == [
        f"{path}:2 there is no `question`",
        f"{path}:7 there is no `answers` or `answer`",
        f"{path}:10 `question` is empty, where a text was expected",
        f"{path}:14 no JSON object, where one was expected",
    ]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "env.data_path: `split_mode: ratio` needs it"),
        ({"split_mode": "split_dir"}, "env.split_dir: `split_mode: split_dir` needs it"),
        ({"data_path": "none.json"}, "env.data_path: there is no"),
        ({"split_mode": "split_dir", "split_dir": "none"}, "env.split_dir: there is no folder"),
    ],
)
def test_a_split_that_cannot_be_had_is_said(tmp_path: Path, settings: Any, message: str):
    with pytest.raises(SpecError, match=message):
        part(SearchQa(), EnvSettings(name="searchqa", folder=tmp_path, **settings))


def test_a_folder_without_a_part_to_decide_by_is_refused(tmp_path: Path):
    write(tmp_path / "split" / "train.json", rows(1))
    with pytest.raises(SpecError, match="there is no val part in"):
        part(SearchQa(), by_folder(tmp_path))


@pytest.mark.parametrize("text", ["2:1", "2:1:x", "2:0:7", "0:1:7", "", "-2:1:7"])
def test_what_is_no_ratio_is_refused(text: str):
    with pytest.raises(ValueError, match=r"."):
        ratio_of(text)


def test_a_ratio_is_three_numbers():
    assert ratio_of("2:1:7") == (2, 1, 7)
    assert ratio_of("3:1:0") == (3, 1, 0)


def test_a_case_of_any_json_is_written(tmp_path: Path):
    class Plain(SearchQa):
        pass

    write(tmp_path / "raw.json", rows(10))
    parted = part(Plain(), by_ratio(tmp_path))
    assert isinstance(parted.cases.train[0], Case)


def test_parts_of_rows_without_ids_are_told_apart_by_the_part(tmp_path: Path):
    """Every part lies in a file of one name, as we write them ourselves."""
    for n, name in enumerate(("train", "val", "test")):
        bare = [{k: v for k, v in row.items() if k != "id"} for row in rows(2, begin=n * 2)]
        write(tmp_path / "split" / name / "items.json", bare)
    cases = part(SearchQa(), by_folder(tmp_path)).cases
    assert [case.id for case in cases.train] == ["train-items-1", "train-items-2"]
    assert [case.id for case in cases.holdout] == ["val-items-1", "val-items-2"]
    assert [case.id for case in cases.test] == ["test-items-1", "test-items-2"]


def test_rows_without_ids_of_data_that_is_shared_out_are_called_by_their_file(tmp_path: Path):
    bare = [{k: v for k, v in row.items() if k != "id"} for row in rows(10)]
    write(tmp_path / "raw.json", bare)
    cases = part(SearchQa(), by_ratio(tmp_path)).cases
    assert set(cases.by_id) == {f"raw-{n}" for n in range(1, 11)}
