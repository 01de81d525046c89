"""BabyVision: its formats, what is asked, and answers that are right by hand."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from kept.core.case import Case
from kept.core.llm import ModelRequest
from kept.core.rollout import Failure, Rollout
from kept.errors import SpecError
from kept.evaluators.environments.babyvision import (
    ASK_BLANK,
    ASK_CHOICE,
    BabyVision,
    boxed_answer,
    same_blank,
)
from kept.evaluators.environments.base import EnvSettings, Graded, JudgeQuestion
from kept.evaluators.environments.datasets import part, values
from kept.testing import EnvironmentSuite, ScriptedModel
from tests.evaluators.environments.babyvision_data import (
    drawn,
    right,
    row,
    verdict,
    write_babyvision,
    write_rows,
    wrong,
)


class TestBabyVision(EnvironmentSuite):
    @pytest.fixture(autouse=True)
    def folder(self, tmp_path: Path) -> None:
        self._folder = tmp_path
        write_babyvision(tmp_path / "BabyVision")

    def make_env(self):
        return BabyVision(data_root=self._folder)

    def data(self):
        return self._folder / "BabyVision"

    def judge(self):
        return ScriptedModel(lambda request: verdict(request.messages[-1].text))

    def solving(self, case: Case) -> Sequence[str]:
        return [right(int(case.id) - 100)]

    def failing(self, case: Case) -> Sequence[str]:
        return [wrong(int(case.id) - 100)]


class TestBabyVisionWithSecondThoughts(TestBabyVision):
    def make_env(self):
        return BabyVision(max_turns=2, data_root=self._folder)

    def solving(self, case: Case) -> Sequence[str]:
        return ["\\boxed{no}", *super().solving(case)]

    def failing(self, case: Case) -> Sequence[str]:
        return [*super().solving(case), *super().failing(case)]


def read(folder: Path, rows: Sequence[dict[str, Any]] | None = None, **options: Any) -> list[Case]:
    place = write_babyvision(folder / "BabyVision")
    if rows is not None:
        write_rows(place, list(rows))
    return [one.case for one in BabyVision(data_root=folder, **options).read(place)]


def told_of(call: Callable[[], object]) -> list[tuple[int, str]]:
    with pytest.raises(SpecError) as raised:
        call()
    return [((one.place or ("", 0))[1], one.message) for one in raised.value.problems]


def test_rows_of_the_published_file_are_read(tmp_path: Path):
    choice, blank = read(tmp_path)[:2]
    assert (choice.id, blank.id) == ("100", "101")
    data = values(choice)
    assert (data["options"], data["choiceAns"]) == (["red", "green", "blue"], "A")
    assert data["image"]["path"] == "BabyVision/images/100.png"
    assert values(blank)["blankAns"] == ["(8,1)"]
    env = BabyVision(data_root=tmp_path)
    about = env.about(choice)
    assert about.type == "Fine-grained Discrimination / Find the same"
    assert (about.reference, about.golds) == ("choice A: red", ("red",))
    assert env.about(blank).golds == ("(8,1)",)


def test_the_file_itself_may_be_named(tmp_path: Path):
    cases = read(tmp_path)
    env = BabyVision(data_root=tmp_path)
    path = tmp_path / "BabyVision" / "meta_data.jsonl"
    assert [one.case for one in env.read(path)] == cases
    # other files of the folder are no data
    (path.parent / "results.json").write_text('[{"Id": 445, "GroundTruth": "(4,7)"}]')
    assert [one.case for one in env.read(path.parent)] == cases


def test_the_picture_stands_behind_question_and_choices(tmp_path: Path):
    choice, blank = read(tmp_path)[:2]
    env = BabyVision(data_root=tmp_path)
    posed = env.pose(choice)
    assert posed.prompt == (
        "## Question\nWhich colour has the ball in scene 0?\n\n"
        f"## Choices\nA. red\nB. green\nC. blue\n\n{ASK_CHOICE}\n\n"
    )
    assert [(one.data, one.at, one.detail) for one in posed.images] == [
        (drawn(0), len(posed.prompt), None)
    ]
    asked = env.pose(blank).prompt
    assert asked.endswith(f"{ASK_BLANK}\n\n") and "## Choices" not in asked
    close = BabyVision(data_root=tmp_path, image_detail="high").pose(choice)
    assert close.images[0].detail == "high"


CHOICE = {**row(0), "options": ["red", "green", "blue"]}


@pytest.mark.parametrize(
    ("options", "given", "label"),
    [
        (["red", "green", "blue"], 1, "B"),
        (["red", "green", "blue"], 0, "A"),
        (["red", "green", "blue"], "1", "B"),
        (["red", "green", "blue"], "C", "C"),
        (["red", "green", "blue"], "(b)", "B"),
        (["red", "green", "blue"], "green", "B"),
        (["red", "green", "blue"], {"label": "B", "text": "green"}, "B"),
        (["red", "green", "blue"], {"text": "blue"}, "C"),
        ([{"label": "A", "text": "red"}, {"label": "B", "content": "green"}], "B", "B"),
        ([{"text": "red"}, {"option": "green"}], "green", "B"),
        ({"A": "red", "B": "green"}, "B", "B"),
        ({"1": "red", "2": "green"}, 2, "B"),
        (["2", "3", "4"], "3", "B"),
        (["2", "3", "4"], 2, "C"),
        ([], "D", "D"),
        ([], 2, "C"),
    ],
)
def test_every_form_of_a_right_choice(tmp_path: Path, options: object, given: object, label: str):
    (case,) = read(tmp_path, [{**CHOICE, "options": options, "choiceAns": given}])
    assert values(case)["choiceAns"] == label


def test_a_number_beyond_the_choices_is_refused_and_no_other_choice(tmp_path: Path):
    """The original takes it as a number from 1, in data that counts from 0."""
    rows = [{**CHOICE, "choiceAns": 3}]
    assert told_of(lambda: read(tmp_path, rows)) == [
        (1, "the `choiceAns` `3` is none of the 3 choices")
    ]
    (case,) = read(tmp_path, rows, first_choice=1)
    assert values(case)["choiceAns"] == "C"


def test_other_names_of_fields_are_known(tmp_path: Path):
    n = 1
    given = row(n)
    question, image = given.pop("question"), given.pop("image")
    renamed = {**given, "query": question, "img": image, "blankAns": ["(8,1)", "eight"]}
    (case,) = read(tmp_path, [renamed])
    assert values(case)["question"] == question
    assert values(case)["blankAns"] == ["(8,1)", "eight"]
    del renamed["taskId"]
    (case,) = read(tmp_path, [{**renamed, "row": 7}])
    assert case.id == "7"


def test_all_that_is_wrong_with_the_data_is_told_at_once(tmp_path: Path):
    rows = [
        {**row(0), "image": "missing.png"},
        {**row(1), "image": None},
        {**row(2), "choiceAns": None},
        {**row(3), "blankAns": None},
        {**row(4), "question": " "},
        {**row(5), "ansType": "essay"},
        {**row(6), "choiceAns": "purple"},
        {**row(8), "options": [str(n) for n in range(27)]},
        {**row(10), "options": "red; blue", "choiceAns": "A"},
        row(7),
    ]
    told = told_of(lambda: read(tmp_path, rows))
    assert [line for line, _ in told] == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert told[0][1].startswith("there is no picture `missing.png` in")
    assert [words for _, words in told[1:]] == [
        "it has no picture",
        "there is no `choiceAns`",
        "there is no `blankAns`",
        "`question` is empty, where a text was expected",
        "`ansType` is `essay`, where `choice` or `blank` was expected",
        "the `choiceAns` `purple` is none of the 3 choices",
        "there are 27 choices, over 26",
        "the options are a text, where a list or a mapping was expected",
    ]


def test_two_choices_of_one_text_are_named_in_a_warning_and_both_count(tmp_path: Path):
    rows = [{**row(0), "options": ["red", "red", "blue"], "choiceAns": 1}, row(1), row(2)]
    read(tmp_path, rows)
    settings = EnvSettings(name="babyvision", folder=tmp_path, data_path="BabyVision")
    env = BabyVision(data_root=tmp_path)
    parted = part(env, settings)
    (note,) = parted.notes
    for said, hard in (("A", 1.0), ("B", 1.0), ("red", 1.0), ("C", 0.0)):
        graded = env.grade(parted.cases.by_id["100"], Rollout(f"\\boxed{{{said}}}"))
        assert isinstance(graded, Graded) and graded.hard == hard
    told = "1 case: a wrong choice has the text of the right one; both count: `100` ("
    assert note.startswith(told) and "meta_data.jsonl:1" in note


def test_a_split_that_is_written_can_be_read(tmp_path: Path):
    read(tmp_path)
    env = BabyVision(data_root=tmp_path)
    settings = EnvSettings(name="babyvision", folder=tmp_path, data_path="BabyVision")
    parted = part(env, settings)
    folder = parted.write(tmp_path / "outputs")
    assert folder is not None
    again = EnvSettings(
        name="babyvision", folder=tmp_path, split_mode="split_dir", split_dir=str(folder)
    )
    assert part(env, again).cases.fingerprint() == parted.cases.fingerprint()
    text = (folder / "train" / "items.json").read_text()
    assert json.loads(text) and str(tmp_path) not in text


BLANKS: list[tuple[str, list[str], bool]] = [
    # by hand: equal but for case, blanks (none count beside , ; : = and brackets), a full stop
    ("(4,7)", ["(4,7)"], True), ("(4, 7)", ["(4,7)"], True), ("( 4 ,7 )", ["(4,7)"], True),
    ("Seven", ["seven"], True), ("seven.", ["seven"], True), ("two  dogs", ["two dogs"], True),
    ("$12$", ["12"], True), (r"\text{red ball}", ["Red ball"], True), ("7", ["seven", "7"], True),
    ("1;2", ["1; 2"], True), ("A = 3", ["a=3"], True), ('"blue"', ["blue"], True),
    ("Zürich", ["ZÜRICH"], True), ("[1, 2]", ["[1,2]"], True), ("x: 3", ["x:3"], True),
    ("(7,4)", ["(4,7)"], False), ("1 2", ["12"], False), ("two dogs", ["twodogs"], False),
    ("12 dogs", ["12"], False), ("4,7", ["(4,7)"], False), ("-3", ["3"], False),
    ("1.0", ["10"], False), ("seven", ["7"], False), ("", ["7"], False),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "golds", "same"), BLANKS)
def test_blanks_as_compared_by_hand(answer: str, golds: list[str], same: bool):
    assert same_blank(answer, golds) is same


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        ("\\boxed{7}", "7"),
        ("no box <|begin_of_box|> 7 <|end_of_box|>", "7"),
        ("<|begin_of_box|>6<|end_of_box|> <|begin_of_box|>7<|end_of_box|>", "7"),
        ("<|begin_of_box|>6<|end_of_box|> but \\boxed{7}", "7"),
    ],
)
def test_the_last_box_counts(reply: str, answer: str):
    assert boxed_answer(reply) == answer


@pytest.mark.parametrize(
    ("n", "reply", "kind"),
    [
        (0, "It is red.", "parse"),
        (0, "\\boxed{purple}", "parse"),
        (0, "\\boxed{ }", "empty"),
        (1, "(8,1)", "parse"),
        (1, f"\\boxed{{{'x' * 3000}}}", "parse"),
    ],
)
def test_what_cannot_be_read_is_a_failure_and_no_zero(
    tmp_path: Path, n: int, reply: str, kind: str
):
    case = read(tmp_path)[n]
    graded = BabyVision(data_root=tmp_path).grade(case, Rollout(reply))
    assert isinstance(graded, Failure), graded
    assert (graded.kind, graded.blame) == (kind, "candidate")


def test_rules_decide_where_they_can_and_a_judge_the_rest(tmp_path: Path):
    choice, blank = read(tmp_path)[:2]
    env = BabyVision(data_root=tmp_path)
    for case, reply, hard in (
        (choice, "\\boxed{A}", 1.0),
        (choice, "\\boxed{red}", 1.0),
        (choice, "\\boxed{B}", 0.0),
        (blank, "\\boxed{(8, 1)}", 1.0),
    ):
        graded = env.grade(case, Rollout(reply))
        assert isinstance(graded, Graded)
        assert (graded.hard, graded.soft) == (hard, hard)
    asked = env.grade(blank, Rollout("\\boxed{eight and one}"))
    assert isinstance(asked, JudgeQuestion)
    request: ModelRequest = asked.request
    text = request.messages[-1].text
    assert "How many balls are in scene 1?" in text and "(8,1)" in text and "eight and one" in text
