"""DocVQA: its two formats, what is asked, and ANLS by hand and against another implementation."""

import csv
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from rapidfuzz.distance import Levenshtein

from kept.core.case import Case
from kept.core.rollout import Failure, Rollout
from kept.errors import SpecError
from kept.evaluators.environments.base import EnvSettings, Graded
from kept.evaluators.environments.datasets import part, values
from kept.evaluators.environments.docvqa import ASK, DocVqa, anls, levenshtein
from kept.testing import EnvironmentSuite
from tests.evaluators.environments.docvqa_data import (
    HEAD,
    amount,
    csv_row,
    write_official,
    write_split,
)
from tests.evaluators.environments.drawing import page
from tests.evaluators.environments.shared import shared


class TestDocVqa(EnvironmentSuite):
    @pytest.fixture(autouse=True)
    def folder(self, tmp_path: Path) -> None:
        self._folder = tmp_path
        write_split(tmp_path)

    def make_env(self):
        return DocVqa(data_root=self._folder)

    def data(self):
        return self._folder / "data" / "docvqa_split" / "train"

    def solving(self, case: Case) -> Sequence[str]:
        answers: list[str] = values(case)["answers"]
        return [f"It says <answer> {answers[-1].upper()} </answer>"]

    def failing(self, case: Case) -> Sequence[str]:
        return ["<answer>nothing like it</answer>"]

    def metrics(self):
        return ("anls",)


class TestDocVqaWithSecondThoughts(TestDocVqa):
    def make_env(self):
        return DocVqa(max_turns=2, data_root=self._folder)

    def solving(self, case: Case) -> Sequence[str]:
        return ["<answer>no</answer>", *super().solving(case)]

    def failing(self, case: Case) -> Sequence[str]:
        return [*super().solving(case), "<answer>nothing like it</answer>"]


ANLS: list[tuple[str, list[str], float]] = [
    # by hand: 1 - edits / the longer length where that share is below one half, else 0
    ("0.28", ["0.28"], 1.0),
    ("0.28", ["0.29"], 1 - 1 / 4),
    ("Kitten", ["sitting"], 1 - 3 / 7),
    ("sitting", ["kitten"], 1 - 3 / 7),
    ("ITC Limited", ["itc limited"], 1.0),
    ("  ITC   Limited ", ["ITC Limited"], 1.0),
    ("ITC", ["ITC Limited"], 0.0),
    ("ITC Ltd", ["ITC Limited"], 1 - 4 / 11),
    ("abcd", ["abxy"], 0.0),
    ("abc", ["abx"], 1 - 1 / 3),
    ("ab", ["ax"], 0.0),
    ("abcde", ["abxye"], 1 - 2 / 5),
    ("", [""], 1.0),
    ("", ["a"], 0.0),
    ("a", [""], 0.0),
    ("1/8/93", ["1/8/93", "1/8/1993"], 1.0),
    ("1/8/1993", ["1/8/93"], 1 - 2 / 8),
    ("January 8", ["1/8/93", "8 January"], 1 - 4 / 9),
    ("$1,234", ["1234"], 1 - 2 / 6),
    ("Zürich", ["Zurich"], 1 - 1 / 6),
    ("university of california", ["University of California, San Diego"], 1 - 11 / 35),
    ("paul", ["pual"], 0.0),
    ("pauls", ["puals"], 1 - 2 / 5),
    ("cat", ["dog", "cap", "cart"], 1 - 1 / 4),
    ("yes", [], 0.0),
]


@pytest.mark.parametrize(("answer", "golds", "expected"), ANLS)
def test_anls_as_computed_by_hand(answer: str, golds: list[str], expected: float):
    assert anls(answer, golds) == pytest.approx(expected)


def test_distances_agree_with_another_implementation():
    """On 400 pairs of words that are alike, and of some that are not."""
    chance = random.Random(7)
    for n in range(400):
        one = "".join(chance.choices("abcdé 1", k=chance.randrange(12)))
        two = list(one) if n % 2 else chance.choices("abcdé 1", k=chance.randrange(12))
        for _ in range(chance.randrange(4)):
            two.insert(chance.randrange(len(two) + 1), chance.choice("xyz"))
        text = "".join(two)
        assert levenshtein(one, text) == Levenshtein.distance(one, text)
        a, b = " ".join(one.lower().split()), " ".join(text.lower().split())
        share = Levenshtein.normalized_distance(a, b)
        assert anls(one, [text]) == pytest.approx(1 - share if share < 0.5 else 0.0)


def case_of(folder: Path, n: int = 0) -> tuple[DocVqa, Case]:
    env = DocVqa(data_root=folder)
    split = folder / "data" / "docvqa_split" / "train"
    return env, [case for case, _ in env.read(split)][n]


def test_rows_of_the_csv_split_are_read(tmp_path: Path):
    write_split(tmp_path)
    env, case = case_of(tmp_path, 1)
    assert case.id == "50001"
    assert values(case)["answers"] == [amount(1), "$137"]
    assert values(case)["image"]["path"] == "data/docvqa_images/q1.png"
    about = env.about(case)
    assert (about.type, about.golds) == ("form", (amount(1), "$137"))
    _, third = case_of(tmp_path, 2)
    assert values(third)["question"] == "What is the total of invoice 2?", "without its path"
    assert values(third)["image"]["path"] == "data/docvqa_images/q2.png"


def test_the_page_stands_behind_the_question(tmp_path: Path):
    write_split(tmp_path)
    env, case = case_of(tmp_path)
    posed = env.pose(case)
    assert posed.prompt == f"What is the total of invoice 0?\n\n{ASK}"
    (image,) = posed.images
    assert image.data == page("Invoice 0", f"Total {amount(0)}")
    assert (image.at, image.detail) == (len(posed.prompt), None)
    close = DocVqa(data_root=tmp_path, image_detail="high").pose(case)
    assert close.images[0].detail == "high"
    assert env.pictures(case) == posed.images


def test_the_official_file_is_shared_out_by_ratio(tmp_path: Path):
    path = write_official(tmp_path / "raw")
    settings = EnvSettings(name="docvqa", folder=tmp_path, data_path=str(path))
    parted = part(DocVqa(data_root=tmp_path), settings)
    assert [len(parted.cases.of(name)) for name in ("train", "holdout", "test")] == [2, 1, 7]  # type: ignore[arg-type] # splits
    assert "49153" in parted.cases.by_id
    # what is written can be read, wherever it lies
    folder = parted.write(tmp_path / "outputs")
    assert folder is not None
    again = part(
        DocVqa(data_root=tmp_path),
        EnvSettings(name="docvqa", folder=tmp_path, split_mode="split_dir", split_dir=str(folder)),
    )
    assert again.cases.fingerprint() == parted.cases.fingerprint()


def test_a_changed_page_makes_another_case(tmp_path: Path):
    write_split(tmp_path)
    before = case_of(tmp_path)[1]
    (tmp_path / "data/docvqa_images/q0.png").write_bytes(page("another"))
    assert case_of(tmp_path)[1] != before


def test_all_that_is_wrong_with_the_data_is_told_at_once(tmp_path: Path):
    split = write_split(tmp_path) / "train" / "train.csv"
    (tmp_path / "data/docvqa_images/q0.png").unlink()
    (tmp_path / "data/docvqa_images/q1.png").write_text("no picture")
    rows = [csv_row(n) for n in range(4)]
    rows[2]["answer"] = ""
    rows[3]["image_path"] = ""
    with split.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, HEAD)
        writer.writeheader()
        writer.writerows(rows)
    with pytest.raises(SpecError) as raised:
        list(DocVqa(data_root=tmp_path).read(split.parent))
    told = [(problem.place or ("", 0), problem.message) for problem in raised.value.problems]
    assert [line for (_, line), _ in told] == [2, 3, 4, 5]
    assert told[0][1].startswith("there is no picture `data/docvqa_images/q0.png`")
    assert "cannot be used" in told[1][1]
    assert told[2][1] == "`answer` is empty, where a text or a list was expected"
    assert told[3][1] == "it has no picture"


@pytest.mark.parametrize(
    ("said", "hard"),
    [
        (f"<answer>no</answer> or <answer>{amount(0)}</answer>", 1.0),
        (f"Let me see.\n\n{amount(0)}\n", 1.0),
        ("<answer>100 dollar</answer>", 0.0),
    ],
)
def test_the_last_answer_or_the_last_line_counts(tmp_path: Path, said: str, hard: float):
    write_split(tmp_path)
    env, case = case_of(tmp_path)
    graded = env.grade(case, Rollout(said))
    assert isinstance(graded, Graded)
    assert graded.hard == hard and graded.soft >= hard


def test_a_near_answer_is_soft_and_not_hard(tmp_path: Path):
    write_split(tmp_path)
    env, case = case_of(tmp_path)
    graded = env.grade(case, Rollout("<answer>100 dollar</answer>"))
    assert isinstance(graded, Graded)
    assert graded.soft == pytest.approx(1 - 1 / 11)
    assert graded.why == "`100 dollar` is not the answer that was expected"


def test_an_empty_answer_is_a_failure_and_no_zero(tmp_path: Path):
    write_split(tmp_path)
    env, case = case_of(tmp_path)
    graded = env.grade(case, Rollout("<answer> </answer>"))
    assert isinstance(graded, Failure)
    assert graded.blame == "candidate"


@pytest.mark.parametrize("text", ["[" * 50_000, "[1, ", "['a', f'x']", "[__import__('os')]"])
def test_a_column_that_only_looks_like_a_list_is_a_text(tmp_path: Path, text: str):
    split = write_split(tmp_path) / "train" / "train.csv"
    with split.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, HEAD)
        writer.writeheader()
        writer.writerow({**csv_row(0), "answer": text})
    (one,) = DocVqa(data_root=tmp_path).read(split)
    assert values(one.case)["answers"] == [text.strip()]


def test_the_published_split_has_ids_of_its_own():
    """The real ids, where they are: each row names a page that the loader would look for."""
    import json

    rows = json.loads(shared("skillopt_splits", "docvqa", "val", "items.json").read_text())
    assert len(rows) == 53 and len({row["questionId"] for row in rows}) == 53
    assert all(row["image_path"].startswith("data/docvqa_images/q") for row in rows)
