"""MathVerse: its versions, what is asked, answers by hand, and its published text-only rows."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from kept.core.case import Case
from kept.core.rollout import Failure, Rollout
from kept.errors import KeptError, SpecError
from kept.evaluators.environments.base import EnvSettings, Graded, Item, JudgeQuestion
from kept.evaluators.environments.datasets import part, values
from kept.evaluators.environments.mathverse import (
    ASK_CHOICE,
    ASK_FREE,
    IN_PICTURE,
    MathVerse,
    final_answer,
)
from kept.testing import EnvironmentSuite, ScriptedModel
from tests.evaluators.environments.drawing import draw
from tests.evaluators.environments.mathverse_data import (
    LETTERS,
    VERSIONS,
    area,
    drawn,
    right,
    row,
    verdict,
    write_diagrams,
    write_mathverse,
    wrong,
)
from tests.evaluators.environments.shared import shared


class TestMathVerse(EnvironmentSuite):
    @pytest.fixture(autouse=True)
    def folder(self, tmp_path: Path) -> None:
        self._folder = tmp_path
        write_mathverse(tmp_path)

    def make_env(self):
        return MathVerse(data_root=self._folder / "data" / "MathVerse")

    def data(self):
        return self._folder / "data" / "mathverse_split" / "train"

    def judge(self):
        return ScriptedModel(lambda request: verdict(request.messages[-1].text))

    def solving(self, case: Case) -> Sequence[str]:
        return [right(int(case.id.partition(":")[0]))]

    def failing(self, case: Case) -> Sequence[str]:
        return [wrong(int(case.id.partition(":")[0]))]


class TestMathVerseInAllVersions(TestMathVerse):
    def make_env(self):
        return MathVerse(problem_version="", data_root=self._folder / "data" / "MathVerse")


class TestMathVerseWithWords(TestMathVerse):
    def make_env(self):
        root = self._folder / "data" / "MathVerse"
        return MathVerse(use_text_dominant_reference=True, max_turns=2, data_root=root)

    def solving(self, case: Case) -> Sequence[str]:
        return ["<answer>no</answer>", *super().solving(case)]

    def failing(self, case: Case) -> Sequence[str]:
        return [*super().solving(case), *super().failing(case)]


def read(folder: Path, rows: Sequence[dict[str, Any]], **options: Any) -> list[Item]:
    root = write_diagrams(folder / "MathVerse", 6)
    (folder / "rows.json").write_text(json.dumps(rows, indent=None).replace("}, {", "},\n{"))
    return list(MathVerse(data_root=root, **options).read(folder / "rows.json"))


def one(folder: Path, given: dict[str, Any], **options: Any) -> tuple[MathVerse, Case]:
    ((case, _),) = read(folder, [given], **options)
    return MathVerse(data_root=folder / "MathVerse", **options), case


def told_of(call: Callable[[], object]) -> list[tuple[int, str]]:
    with pytest.raises(SpecError) as raised:
        call()
    return [((one.place or ("", 0))[1], one.message) for one in raised.value.problems]


def test_only_rows_of_the_version_are_cases(tmp_path: Path):
    rows = [row(n, version) for n in range(3) for version in ("Text Dominant", "Text Lite")]
    cases = [item.case for item in read(tmp_path, rows)]
    assert [case.id for case in cases] == ["0", "1", "2"]
    assert {values(case)["problem_version"] for case in cases} == {"Text Lite"}
    both = [item.case.id for item in read(tmp_path, rows, problem_version="")]
    assert both[:2] == ["0:Text Dominant", "0:Text Lite"] and len(both) == 6


def test_a_version_that_is_not_there_is_an_error_that_names_those_that_are(tmp_path: Path):
    rows = [row(0, "Text Dominant"), row(1, "Vision Only")]
    ((_, message),) = told_of(lambda: read(tmp_path, rows))
    assert message == (
        "no row is of `problem_version: Text Lite`; there is `Text Dominant`, `Vision Only`"
    )


def test_the_diagram_stands_behind_the_problem(tmp_path: Path):
    env, case = one(tmp_path, row(2))
    posed = env.pose(case)
    assert posed.prompt == f"{row(2)['question']}\n\n{ASK_CHOICE}"
    assert [(image.data, image.at) for image in posed.images] == [(drawn(2), len(posed.prompt))]
    assert values(case)["image"]["path"] == "images/images_version_1-4/image_2.png"
    env, case = one(tmp_path, row(3))
    assert env.pose(case).prompt.endswith(ASK_FREE)


def test_a_problem_that_is_all_picture_says_so_and_is_judged_by_its_words(tmp_path: Path):
    env, case = one(tmp_path, row(2, "Vision Only"), problem_version="Vision Only")
    posed = env.pose(case)
    assert posed.prompt == f"{IN_PICTURE}\n\n{ASK_CHOICE}" and posed.images[0].data == drawn(2)
    env, case = one(tmp_path, row(3, "Vision Only"), problem_version="Vision Only")
    asked = env.grade(case, Rollout("<answer>about 48</answer>"))
    assert isinstance(asked, JudgeQuestion)
    assert "What is the area of rectangle 3?" in asked.request.messages[-1].text


def test_analysts_are_told_the_problem_in_words_where_the_config_wants_it(tmp_path: Path):
    env, case = one(tmp_path, row(3))
    assert "sides" not in env.about(case).task
    env, case = one(tmp_path, row(3), use_text_dominant_reference=True)
    assert "with sides 6 and 8" in env.about(case).task
    assert "with sides" not in env.pose(case).prompt
    ((line, message),) = told_of(
        lambda: read(
            tmp_path, [{**row(3), "problem_index": "99"}], use_text_dominant_reference=True
        )
    )
    assert (line, message) == (1, "testmini.json has no `Text Dominant` version of it")
    (tmp_path / "MathVerse" / "testmini.json").unlink()
    with pytest.raises(KeptError, match=r"there is no .*testmini\.json"):
        list(env.read(tmp_path / "rows.json"))


def test_an_analyst_sees_subject_and_right_choice(tmp_path: Path):
    env, case = one(tmp_path, row(2))
    about = env.about(case)
    assert (about.type, about.reference) == ("Plane Geometry / Area", f"choice C: {area(2)}")
    assert about.golds == (str(area(2)),)


def test_all_that_is_wrong_with_the_data_is_told_at_once(tmp_path: Path):
    text_only = {"problem_version": "Text Only", "image": ""}
    rows = [
        {**row(0), "image": "images_version_1-4/image_77.png"},
        {**row(1), "image": ""},
        {**row(2), "answer": ""},
        {**row(4), "answer": "F"},
        {**row(4), "question": "Which?", "answer": "72", "problem_index": "5"},
        {**row(3), **text_only, "question": " "},
        {**row(5), **text_only},
    ]
    told = told_of(lambda: read(tmp_path, rows, problem_version=""))
    assert [line for line, _ in told] == [1, 2, 3, 4, 5, 6]
    assert told[0][1].startswith("there is no picture `images_version_1-4/image_77.png` in")
    assert [words for _, words in told[1:]] == [
        "it has no picture",
        "`answer` is empty, where a text or a list was expected",
        "the `answer` `F` is none of the 4 choices",
        "the `answer` `72` is no letter, without choices",
        "it has neither question nor picture",
    ]


def test_choices_of_one_text_are_named_in_a_warning_and_both_count(tmp_path: Path):
    given = {**row(0), "question": "q?\nChoices:\nA:7\nB:$7$\nC:8", "answer": "A"}
    read(tmp_path, [given, row(1), row(2)])
    env = MathVerse(data_root=tmp_path / "MathVerse")
    settings = EnvSettings(name="mathverse", folder=tmp_path, data_path="rows.json")
    parted = part(env, settings)
    (note,) = parted.notes
    assert note.startswith("1 case: a wrong choice has the text of the right one; both count: `0`")
    assert "rows.json:1" in note
    for said, hard in (("A", 1.0), ("B", 1.0), ("C", 0.0)):
        graded = env.grade(parted.cases.by_id["0"], Rollout(f"<answer>{said}</answer>"))
        assert isinstance(graded, Graded) and graded.hard == hard


def test_the_whole_file_is_shared_out_by_ratio_and_read_back(tmp_path: Path):
    root = write_diagrams(tmp_path / "MathVerse", 6)
    env = MathVerse(data_root=root)
    path = str(root / "testmini.json")
    parted = part(env, EnvSettings(name="mathverse", folder=tmp_path, data_path=path))
    assert sorted(parted.cases.by_id) == [str(n) for n in range(6)]
    folder = parted.write(tmp_path / "outputs")
    again = EnvSettings(
        name="mathverse", folder=tmp_path, split_mode="split_dir", split_dir=str(folder)
    )
    assert part(env, again).cases.fingerprint() == parted.cases.fingerprint()


CHOICE = "q?\nChoices:\nA:40^\\circ\nB:60°\nC:x and y\nD:none"
GRADES: list[tuple[str, str, float | None]] = [
    # by hand: published answer, reply, and whether it is right (None: it cannot be read)
    ("B", "<answer>B</answer>", 1.0), ("B", "<answer>A</answer> no <answer>b</answer>", 1.0),
    ("B", "\\boxed{B}", 1.0), ("B", "<answer>\\boxed{\\text{B}}</answer>", 1.0),
    ("B", "So\n(B)", 1.0), ("B", "<answer>60°</answer>", 1.0),
    ("B", "<answer>$60^{\\circ}$</answer>", 1.0), ("B", "<answer>B:60°</answer>", 1.0),
    ("B", "<answer>A</answer>", 0.0), ("B", "<answer>B</answer>\nor\n<answer>D</answer>", 0.0),
    ("B", "<answer>A, B</answer>", None), ("B", "<answer>60 or so</answer>", None),
    ("B", "<answer>E</answer>", None), ("B", "I cannot say", None), ("(B)", "B", 1.0),
    ("60°", "<answer>B</answer>", 1.0), ("40°", "<answer>A</answer>", 1.0), ("none", "D", 1.0),
    ("C\nD", "<answer>C, D</answer>", 1.0), ("C\nD", "<answer>D and C</answer>", 1.0),
    ("C\nD", "<answer>C</answer>", 0.0), ("C\nD", "<answer>A, C, D</answer>", 0.0),
    ("C\nD", "<answer>C or D</answer>", None), ("C\nD", "\\boxed{C, D}", 1.0),
]  # fmt: skip


def test_the_versions_of_a_problem_share_a_split(tmp_path: Path):
    """One that was learnt from says in words what another shows in its picture."""
    root = write_diagrams(tmp_path, 10)
    env = MathVerse(problem_version="", data_root=root)
    settings = EnvSettings(name="mathverse", data_path=str(root / "testmini.json"))
    cases = part(env, settings).cases
    parts = [[case.id for case in one] for one in (cases.train, cases.holdout, cases.test)]
    assert [len(one) for one in parts] == [size * len(VERSIONS) for size in (2, 1, 7)]
    problems = [{id_.partition(":")[0] for id_ in one} for one in parts]
    assert [len(one) for one in problems] == [2, 1, 7]
    # with one version there are no twins, and the split is what it was
    one = MathVerse(data_root=root)
    assert [one.twin(item.case) for item in one.read(root / "testmini.json")] == [""] * 10


def test_versions_of_a_problem_in_two_parts_are_named_with_both_places(tmp_path: Path):
    split = write_mathverse(tmp_path)
    (split / "val" / "val.json").write_text(json.dumps([row(0, "Vision Only"), row(7)]))
    train = split / "train" / "train.json"
    moved = [
        row(n, version)
        for n in range(6)
        for version in VERSIONS
        if (n, version) != (0, "Vision Only")
    ]
    train.write_text(json.dumps(moved))
    env = MathVerse(problem_version="", data_root=tmp_path / "data" / "MathVerse")
    settings = EnvSettings(name="mathverse", split_mode="split_dir", split_dir=str(split))
    with pytest.raises(SpecError) as caught:
        part(env, settings)
    (problem,) = caught.value.problems
    assert problem.message == f"`0:Vision Only` of val is a twin of what train has in {train}:1"


@pytest.mark.parametrize(("answer", "reply", "hard"), GRADES)
def test_choices_as_graded_by_hand(tmp_path: Path, answer: str, reply: str, hard: float | None):
    env, case = one(tmp_path, {**row(0), "question": CHOICE, "answer": answer})
    graded = env.grade(case, Rollout(reply))
    if hard is None:
        assert isinstance(graded, Failure) and graded.blame == "candidate"
    else:
        assert isinstance(graded, Graded) and (graded.hard, graded.soft) == (hard, hard)


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        ("<answer>7</answer> \\boxed{8}", "7"),
        ("<answer>\\boxed{7}</answer>", "7"),
        ("so \\boxed{\\frac{1}{2}} it is", "\\frac{1}{2}"),
        ("so\n\n7 cm\n", "7 cm"),
        ("<answer>$7$", "$7$"),
    ],
)
def test_tags_count_before_boxes_and_boxes_before_lines(reply: str, answer: str):
    assert final_answer(reply) == answer


@pytest.mark.parametrize("reply", ["<answer> </answer>", "<answer>\\boxed{}</answer>", "\n"])
def test_an_empty_answer_is_a_failure_and_no_zero(tmp_path: Path, reply: str):
    env, case = one(tmp_path, row(1))
    graded = env.grade(case, Rollout(reply))
    assert isinstance(graded, Failure) and (graded.kind, graded.blame) == ("empty", "candidate")


def test_a_free_form_that_is_another_formula_goes_to_the_judge(tmp_path: Path):
    env, case = one(tmp_path, row(1))
    graded = env.grade(case, Rollout(f"<answer>{area(1)}</answer>"))
    assert isinstance(graded, Graded) and graded.hard == 1
    asked = env.grade(case, Rollout("<answer>four times six</answer>"))
    assert isinstance(asked, JudgeQuestion)
    text = asked.request.messages[-1].text
    assert f"${area(1)}$" in text and "four times six" in text


def test_the_published_rows_are_all_read_and_solved_by_their_own_answers():
    """All 788 real rows: every choice has its right label, and no answer needs a judge."""
    env = MathVerse(problem_version="Text Only")
    items = list(env.read(shared("mathverse", "testmini_text_only.json")))
    assert len(items) == 788
    assert not list(env.defects(items))
    for case, where in items:
        assert not env.pose(case).images
        choice = values(case)["question_type"] == "multi-choice"
        answer = values(case)["answer"][0].replace("\n", ", " if choice else "\n")
        graded = env.grade(case, Rollout(f"<answer>{answer}</answer>"))
        assert isinstance(graded, Graded) and graded.hard == 1, (where, answer)
        if choice:
            said = env.grade(case, Rollout("<answer>H</answer>"))
            assert isinstance(said, Failure)


def test_a_published_row_with_a_picture_drawn_here(tmp_path: Path):
    """Row 1 as `Text Lite`, its picture where the data has it."""
    rows = json.loads(shared("mathverse", "testmini_text_only.json").read_text())
    draw(tmp_path / "images" / "images_version_1-4" / "image_1.png", "A triangle")
    given = {**rows[0], "problem_version": "Text Lite", "image": "images_version_1-4/image_1.png"}
    (tmp_path / "rows.json").write_text(json.dumps([given]))
    env = MathVerse(data_root=tmp_path)
    ((case, _),) = env.read(tmp_path / "rows.json")
    assert env.about(case).reference == "choice D: 140°"
    for said, hard in (("D", 1.0), ("140°", 1.0), ("B", 0.0)):
        graded = env.grade(case, Rollout(f"<answer>{said}</answer>"))
        assert isinstance(graded, Graded) and graded.hard == hard
    assert LETTERS[3] == values(case)["answer"][0]
