"""MMRB: its format, pictures in their places, and answers by hand."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from kept.core.case import Case
from kept.core.llm import Message, parts_of
from kept.core.rollout import Failure, Rollout
from kept.errors import SpecError
from kept.evaluators.environments.base import EnvSettings, Graded, Item
from kept.evaluators.environments.datasets import part, values
from kept.evaluators.environments.mmrb import (
    ASK_CHOICE,
    ASK_FREE,
    Mmrb,
    answer_of,
    contains,
    same_words,
)
from kept.testing import EnvironmentSuite
from tests.evaluators.environments.drawing import draw, page
from tests.evaluators.environments.mmrb_data import card, right, row, shown, write_mmrb, wrong


class TestMmrb(EnvironmentSuite):
    @pytest.fixture(autouse=True)
    def folder(self, tmp_path: Path) -> None:
        self._folder = tmp_path
        write_mmrb(tmp_path / "MMRB")

    def make_env(self):
        return Mmrb(data_root=self._folder)

    def data(self):
        return self._folder / "MMRB"

    def number(self, case: Case) -> int:
        return int(values(case)["question"].partition("Row ")[2].partition(":")[0])

    def solving(self, case: Case) -> Sequence[str]:
        return [right(self.number(case))]

    def failing(self, case: Case) -> Sequence[str]:
        return [wrong(self.number(case))]


class TestMmrbOfShortAnswers(TestMmrb):
    def data(self):
        return self._folder / "MMRB" / "count"

    def metrics(self):
        return ("contains",)


class TestMmrbWithSecondThoughts(TestMmrb):
    def make_env(self):
        return Mmrb(max_turns=2, data_root=self._folder)

    def solving(self, case: Case) -> Sequence[str]:
        return ["<answer>no</answer>", *super().solving(case)]

    def failing(self, case: Case) -> Sequence[str]:
        return [*super().solving(case), *super().failing(case)]


def read(folder: Path, rows: Sequence[dict[str, Any]]) -> list[Item]:
    for name in "0123":
        draw(folder / "images" / f"0_{name}.png", f"picture {name}")
    lines = ",\n".join(json.dumps(one) for one in rows)
    (folder / "small_human.json").write_text(f"[{lines}]")
    return list(Mmrb(data_root=folder).read(folder))


def told_of(call: Callable[[], object]) -> list[tuple[int, str]]:
    with pytest.raises(SpecError) as raised:
        call()
    return [((one.place or ("", 0))[1], one.message) for one in raised.value.problems]


def test_files_of_all_folders_are_read_each_with_the_pictures_beside_it(tmp_path: Path):
    env = Mmrb(data_root=tmp_path)
    # pictures of the same names where `data_root` is are others
    draw(tmp_path / "images" / "0_0.png", "another")
    items = list(env.read(write_mmrb(tmp_path / "MMRB", 4)))
    assert [item.case.id for item in items] == [
        *("ours:Image Retrieval:0", "ours:Image Retrieval:1", "ours:Counting:0", "ours:Counting:1")
    ]
    first, third = items[0].case, items[2].case
    assert values(first)["images"][0]["path"] == "MMRB/cards/images/0_0.png"
    assert values(third)["images"][0]["path"] == "MMRB/count/images/0_0.png"
    assert env.pictures(third)[0].data == page(*card(1, 1))
    about = env.about(first)
    assert (about.type, about.reference) == ("ours / Image Retrieval", "choice A: second")
    assert about.golds == ("second",)
    assert env.about(third).golds == ("1 stars",)


def test_pictures_stand_in_their_places_and_the_rest_behind(tmp_path: Path):
    env = Mmrb(data_root=tmp_path)
    items = list(env.read(write_mmrb(tmp_path / "MMRB", 4)))
    posed = env.pose(items[0].case)
    parts = list(parts_of(Message("user", posed.prompt, posed.images)))
    second, third, first, fourth = shown(0)
    told = [part if isinstance(part, str) else part.data for part in parts]
    assert told == [
        *("Row 0: which of ", second, " and ", third, " goes with ", first),
        *("? (A) second (B) third\n\n[Additional picture 4]\n", fourth, f"\n\n{ASK_CHOICE}"),
    ]
    assert env.pose(items[2].case).prompt.endswith(ASK_FREE)
    close = Mmrb(data_root=tmp_path, image_detail="low").pose(items[0].case)
    assert {image.detail for image in close.images} == {"low"}


def test_a_picture_that_is_named_twice_is_shown_twice(tmp_path: Path):
    asked = "{image#1} or {image#2}, and again {IMAGE#1}?"
    given = {**row(1), "question": asked, "image_paths": ["images/0_0.png", "./images/0_1.png"]}
    ((case, _),) = read(tmp_path, [given])
    data = [image.data for image in Mmrb(data_root=tmp_path).pose(case).images]
    assert data == [page("picture 0"), page("picture 1"), page("picture 0")]


def test_options_that_are_no_part_of_the_question_are_shown_behind_it(tmp_path: Path):
    for options in (
        ["second", "third"],
        ["(A) second", "(B) third"],
        {"A": "second", "B": "third"},
    ):
        given = {**row(0), "question": "Which goes with {image#1}?", "options": options}
        ((case, _),) = read(tmp_path, [given])
        prompt = Mmrb(data_root=tmp_path).pose(case).prompt
        assert prompt.startswith("Which goes with ?\n\n(A) second\n(B) third"), prompt


@pytest.mark.parametrize(
    ("options", "answer", "labels"),
    [
        (["(A) x", "(B) y"], "B", "BA"),
        (["(A) x", "(B) y"], "(B)", "BA"),
        (["(A) x", "(B) y"], "(B) y", "BA"),
        (["(A) x", "(B) y"], "y", "BA"),
        (["A. x", "B. y"], "b", "BA"),
        (["A: x", "B: y"], "y", "BA"),
        (["x", "y"], "B", "BA"),
        (["(C) x", "(D) y"], "D", "DC"),
        ([], "D", "DA"),
    ],
)
def test_every_form_of_options_and_answers(
    tmp_path: Path, options: list[str], answer: str, labels: str
):
    """The right label, and a wrong one."""
    ((case, _),) = read(tmp_path, [{**row(0), "options": options, "answer": answer}])
    env = Mmrb(data_root=tmp_path)
    for label, hard in zip(labels, (1.0, 0.0), strict=True):
        for said in (label, f"({label.lower()})"):
            graded = env.grade(case, Rollout(f"<answer>{said}</answer>"))
            assert isinstance(graded, Graded) and graded.hard == hard


def test_all_that_is_wrong_with_the_data_is_told_at_once(tmp_path: Path):
    rows: list[dict[str, Any]] = [
        {**row(0), "image_paths": ["images/0_0.png", "images/9_9.png", "images/8_8.png"]},
        {**row(0), "image_paths": []},
        {**row(1), "answer": None},
        {**row(0), "answer": "C"},
        {**row(1), "question": "{image#1} and {image#3}?"},
        {**row(0), "options": ["(A) x", "(A) y"]},
        {**row(1), "question": ""},
        row(1),
    ]
    told = told_of(lambda: read(tmp_path, rows))
    assert [line for line, _ in told] == [1, 1, 2, 3, 4, 5, 6, 7]
    assert told[0][1].startswith("there is no picture `images/9_9.png`")
    assert told[1][1].startswith("there is no picture `images/8_8.png`")
    assert [words for _, words in told[2:]] == [
        "it has no pictures in `image_paths`",
        "there is no `answer`",
        "the `answer` `C` is none of the 2 choices",
        "`{image#3}` is none of its 2 pictures",
        "two of its `options` have one label",
        "`question` is empty, where a text was expected",
    ]


def test_choices_of_one_text_are_named_in_a_warning_and_both_count(tmp_path: Path):
    read(
        tmp_path,
        [
            {**row(0), "options": ["(A) x", "(B) x", "(C) y"], "answer": "B"},
            row(1),
            {**row(1), "index": 7},
        ],
    )
    settings = EnvSettings(name="mmrb", folder=tmp_path, data_path="small_human.json")
    env = Mmrb(data_root=tmp_path)
    parted = part(env, settings)
    (note,) = parted.notes
    told = "1 case: a wrong choice has the text of the right one; both count: `ours:Image Ret"
    assert note.startswith(told) and "small_human.json:1" in note
    case = parted.cases.by_id["ours:Image Retrieval:0"]
    for said, hard in (("A", 1.0), ("B", 1.0), ("x", 1.0), ("C", 0.0)):
        graded = env.grade(case, Rollout(f"<answer>{said}</answer>"))
        assert isinstance(graded, Graded) and graded.hard == hard


def test_a_split_that_is_written_can_be_read(tmp_path: Path):
    write_mmrb(tmp_path / "MMRB")
    env = Mmrb(data_root=tmp_path)
    parted = part(env, EnvSettings(name="mmrb", folder=tmp_path, data_path="MMRB"))
    folder = parted.write(tmp_path / "outputs")
    assert folder is not None
    again = EnvSettings(name="mmrb", folder=tmp_path, split_mode="split_dir", split_dir=str(folder))
    assert part(env, again).cases.fingerprint() == parted.cases.fingerprint()
    assert str(tmp_path) not in (folder / "train" / "items.json").read_text()


ANSWERS = [
    # by hand: tags, `Answer[...]`, a box, one letter, `answer is`, `Answer:`, else all of it
    ("<answer>A</answer>", "A"), ("<answer>A</answer> <answer>B</answer>", "B"),
    ("<answer>A</answer> Answer[B]", "A"), ("Answer[B]", "B"), ("Answer [ B ] \\boxed{C}", "B"),
    ("answer[A] or ANSWER[two cats]", "two cats"), ("\\boxed{C}", "C"),
    ("It is \\boxed{\\frac{1}{2}}", "\\frac{1}{2}"),
    ("The answer is A, \\boxed{B}", "B"), ("B", "B"), ("(B).", "(B)."), (" c \n", "c"),
    ("The final answer is B", "B"), ("the answer is A. No, the final answer is: C", "C"),
    ("So the answer is two cats", "two cats"), ("the answer is A\nthe answer is B", "B"),
    ("Answer: two cats", "two cats"), ("ANSWER : B", "B"), ("Answer: A\nAnswer: B", "B"),
    ("The answer is B\nAnswer: A", "B"), ("two cats", "two cats"),
    ("three\nlines of\ntext", "three\nlines of\ntext"),
    ("The answer is:\nB", "The answer is:\nB"),
]  # fmt: skip


@pytest.mark.parametrize(("reply", "answer"), ANSWERS)
def test_answers_as_found_by_hand(reply: str, answer: str):
    assert answer_of(reply) == answer


WORDS = [
    # by hand: the same words and numbers, case and punctuation apart
    ("two cats", "two cats", True), ("Two cats.", "two cats", True), ("two-cats", "two cats", True),
    ("'Two'  cats!", "two cats", True), ("3", "3", True), ("3.", "3", True),
    ("(3, 4)", "3 4", True),
    ("1,234", "1234", True), ("$1,234.50", "1234.50", True), ("\\text{two cats}", "two cats", True),
    ("50%", "50%", True), ("10:30", "10:30", True), ("red; green", "red, green", True),
    ("ÉCOLE", "école", True), ("猫", "猫", True), ("→", "→", True),
    ("snake_case", "snake case", True),
    ("$-3$", "-3", True), ("A-3", "a-3", True), ("1/2", "1/2", True),
    ("1.5", "15", False), ("-3", "3", False), ("→", "←", False), ("50%", "50", False),
    ("two", "two cats", False), ("cats two", "two cats", False), ("1/2", "12", False),
    ("", "3", False),
    ("two cats and a dog", "two cats", False), ("twocats", "two cats", False),
    ("10:30", "1030", False),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "gold", "same"), WORDS)
def test_words_as_compared_by_hand(answer: str, gold: str, same: bool):
    assert same_words(answer, gold) is same
    assert same_words(gold, answer) is same


PARTS = [
    # by hand: the letters of one stand in the other
    ("two cats", "two cats", True), ("two cats and a dog", "two cats", True),
    ("cats", "two cats", True),
    ("Cats!", "two cats", True), ("at", "two cats", True), ("a", "cats", True), ("3", "13", True),
    ("13 dogs", "3", True), ("TWO", "two cats", True), ("the number 7.", "7", True),
    ("red, green", "green", True), ("o c", "two cats", True), ("1.5", "1.5 m", True),
    ("dog", "two cats", False), ("two dogs", "two cats", False), ("", "two cats", False),
    ("cats two", "two cats", False), ("7", "8", False), ("twocats", "two cats", False),
    ("15", "1.5", False), ("4 5", "45", False),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "gold", "part"), PARTS)
def test_parts_as_compared_by_hand(answer: str, gold: str, part: bool):
    assert contains(answer, gold) is part
    assert contains(gold, answer) is part


@pytest.mark.parametrize(
    ("n", "reply", "free_form", "hard"),
    [
        (0, "<answer>A</answer>", "equal", 1.0),
        (0, "Answer[second]", "equal", 1.0),
        (0, "The final answer is (B)", "equal", 0.0),
        (1, "<answer>1 star or 1 stars or 2 stars</answer>", "equal", 0.0),
        (1, "<answer>1 star or 1 stars or 2 stars</answer>", "contains", 1.0),
        (1, "<answer>1 STARS</answer>", "equal", 1.0),
    ],
)
def test_saying_everything_is_right_only_where_the_config_says_so(
    tmp_path: Path, n: int, reply: str, free_form: Any, hard: float
):
    ((case, _),) = read(tmp_path, [row(n)])
    graded = Mmrb(free_form=free_form, data_root=tmp_path).grade(case, Rollout(reply))
    assert isinstance(graded, Graded)
    assert (graded.hard, graded.soft) == (hard, hard)
    assert graded.metrics == ({"contains": 1.0} if n else {})


@pytest.mark.parametrize(
    ("n", "reply", "kind"),
    [(0, "<answer>neither</answer>", "parse"), (0, "I see A and B", "parse"), (1, " ", "empty")],
)
def test_what_cannot_be_read_is_a_failure_and_no_zero(
    tmp_path: Path, n: int, reply: str, kind: str
):
    ((case, _),) = read(tmp_path, [row(n)])
    graded = Mmrb(data_root=tmp_path).grade(case, Rollout(reply))
    assert isinstance(graded, Failure)
    assert (graded.kind, graded.blame) == (kind, "candidate")
