"""LiveMathematicianBench: its formats, the order of choices, and whose letter is right."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kept.core.case import Case
from kept.core.rollout import Failure, Rollout
from kept.errors import SpecError
from kept.evaluators.environments.base import Graded
from kept.evaluators.environments.datasets import values
from kept.evaluators.environments.livemathematicianbench import (
    Choice,
    LiveMathematicianBench,
    boxed_label,
    label_of,
)
from kept.testing import EnvironmentSuite
from tests.evaluators.environments.livemath_data import QUESTIONS, right_text, row, write_months
from tests.evaluators.environments.shared import shared


def letter_of(prompt: str, text: str) -> str:
    """The letter that a prompt shows a choice with."""
    return next(line[0] for line in prompt.splitlines() if line[1:] == f". {text}")


class TestLiveMathematicianBench(EnvironmentSuite):
    @pytest.fixture(autouse=True)
    def folder(self, tmp_path: Path) -> None:
        self._folder = write_months(tmp_path)

    def make_env(self) -> LiveMathematicianBench:
        return LiveMathematicianBench()

    def data(self):
        return self._folder

    def letters(self, case: Case) -> tuple[str, str]:
        prompt = self.make_env().pose(case).prompt
        right = letter_of(prompt, right_text(prompt))
        return right, "A" if right != "A" else "B"

    def solving(self, case: Case) -> Sequence[str]:
        return [f"So it is <answer>{self.letters(case)[0]}.</answer>"]

    def failing(self, case: Case) -> Sequence[str]:
        return [f"<answer>{self.letters(case)[1]}</answer>"]


class TestLiveMathematicianBenchOfficial(TestLiveMathematicianBench):
    def make_env(self) -> LiveMathematicianBench:
        return LiveMathematicianBench(prompt="official", shuffle_choices=False)

    def solving(self, case: Case) -> Sequence[str]:
        return [f"So it is \\boxed{{{self.letters(case)[0]}}}"]

    def failing(self, case: Case) -> Sequence[str]:
        return [f"Answer: {self.letters(case)[1]}"]


def read(folder: Path, rows: Sequence[dict[str, Any]], **options: Any) -> list[Case]:
    (folder / "rows.json").write_text(json.dumps(rows, indent=1))
    env = LiveMathematicianBench(**options)
    return [one.case for one in env.read(folder / "rows.json")]


def test_monthly_files_of_a_folder_are_read_and_the_right_choice_is_added(tmp_path: Path):
    cases = [one.case for one in LiveMathematicianBench().read(write_months(tmp_path))]
    assert {case.id for case in cases} == {f"{row(n)['month']}:{n}" for n in range(12)}
    for case in cases:
        choices, right = values(case)["choices"], values(case)["correct_choice"]
        assert len(choices) == 4 and "ABCD".index(right) >= 0
        assert choices["ABCD".index(right)] == right_text(values(case)["question"])
        assert values(case)["theorem_type"] == [
            kind for question, _, _, kind in QUESTIONS if question == values(case)["question"]
        ]


@pytest.mark.parametrize(
    ("choices", "right"),
    [
        (["x", "y", "z"], "B"),
        (["x", "y", "z"], {"label": "B", "text": "y"}),
        (
            [
                {"label": "A", "text": "x"},
                {"label": "B", "content": "y"},
                {"label": "C", "text": "z"},
            ],
            "b.",
        ),
        ({"B": "y", "A": "x", "C": "z"}, "B"),
        ([{"text": "x"}, {"text": "y"}, {"text": "z"}], {"label": "", "text": "y"}),
        ([{"label": "A", "text": "x"}, {"label": "C", "text": "z"}], {"label": "B", "text": "y"}),
    ],
)
def test_every_published_form_of_choices_is_the_same_case(
    tmp_path: Path, choices: object, right: object
):
    nested = {"month": "1", "mcq": {"question": "q", "choices": choices, "correct_choice": right}}
    (case,) = read(tmp_path, [nested])
    assert case.id == "1:1", "without a number, by its row"
    assert (values(case)["choices"], values(case)["correct_choice"]) == (["x", "y", "z"], "B")
    flat = {"id": "7", "question": "q", "choices": choices, "correct_choice": right}
    (case,) = read(tmp_path, [flat])
    assert case.id == "7"


def test_choices_stand_in_another_order_and_always_in_the_same(tmp_path: Path):
    cases = read(tmp_path, [row(n) for n in range(12)])
    env = LiveMathematicianBench()
    shown = [env.pose(case).prompt for case in cases]
    assert shown == [LiveMathematicianBench().pose(case).prompt for case in cases]
    letters = {letter_of(prompt, right_text(prompt)) for prompt in shown}
    assert letters == set("ABCD"), "the right one is not always the same letter"
    other = LiveMathematicianBench(shuffle_seed=1)
    assert any(other.pose(case).prompt != prompt for case, prompt in zip(cases, shown, strict=True))
    plain = LiveMathematicianBench(shuffle_choices=False)
    for case in cases:
        assert plain.about(case).reference == values(case)["correct_choice"]


def test_what_is_asked_and_what_is_added_where_the_config_wants_it(tmp_path: Path):
    (case,) = read(tmp_path, [row(0)])
    plain = LiveMathematicianBench(shuffle_choices=False).pose(case)
    assert plain.prompt == (
        "## Question\nLet $G$ be a finite group of prime order $p$. Which statement holds?\n\n"
        "## Choices\nA. $G$ is cyclic.\nB. $G$ is never abelian.\n"
        "C. $G$ has a subgroup of order $2$.\nD. $G$ has $p-1$ subgroups."
    )
    more = LiveMathematicianBench(use_theorem=True, use_sketch=True).pose(case).prompt
    assert more.endswith("## Theorem\nTheorem 0.\n\n## Proof Sketch\nSketch 0.")
    official = LiveMathematicianBench(prompt="official").pose(case)
    assert "\\boxed{X}" in official.prompt and official.prompt.endswith("Your answer:")


CHOICES = [
    Choice("A", "It converges."),
    Choice("B", "$n - 1$"),
    Choice("C", "A map"),
    Choice("D", "Both"),
]
LABELS = [
    # by hand: the label, its punctuation apart; else the text of a choice; else its first word
    ("A", "A"), ("b", "B"), ("C.", "C"), ("D)", "D"), ("A:", "A"), ("(B)", "B"), (" c ", "C"),
    ("D.)", "D"), ("it converges.", "A"), ("IT  CONVERGES.", "A"), ("$N - 1$", "B"), ("a map", "C"),
    ("both", "D"), ("B because n - 1", "B"), ("C) A map", "C"), ("A. It converges.", "A"),
    ("E", ""), ("none", ""), ("It diverges.", ""), ("", ""), ("B.", "B"), ("d:", "D"), ("(a", "A"),
]  # fmt: skip
BOXES = [
    (r"so \boxed{B}", "B"), (r"\boxed{A} no, \boxed{C}", "C"), (r"\boxed{ d }", "D"),
    (r"\boxed{\text{B}}", "B"), (r"\boxed{(C)}", "C"), ("The answer is C", "C"),
    ("the answer is: **D**", "D"), ("Answer: B", "B"), ("ANSWER: (A)", "A"),
    ("I take A, no: B", "B"), ("answer is a", "A"), ("Final answer: **C**", "C"),
    (r"The answer is A but \boxed{B}", "B"), ("answer is B. Answer: C", "B"), ("Choice D.", "D"),
    ("It must be (C).", "C"), ("B", "B"), ("Answer:\nD", "D"), ("The answer is (B).", "B"),
    (r"$\boxed{A}$.", "A"), (r"\boxed{B) two}", "B"),
]  # fmt: skip


@pytest.mark.parametrize(("said", "label"), LABELS)
def test_labels_as_read_by_hand(said: str, label: str):
    assert label_of(said, CHOICES) == label


@pytest.mark.parametrize(("said", "label"), BOXES)
def test_boxes_as_read_by_hand(said: str, label: str):
    assert boxed_label(said) == label


def test_a_reply_without_a_choice_is_a_failure_and_no_zero(tmp_path: Path):
    (case,) = read(tmp_path, [row(0)])
    for env, said in (
        (LiveMathematicianBench(), "<answer>none of them</answer>"),
        (LiveMathematicianBench(prompt="official"), "i do not know"),
    ):
        graded = env.grade(case, Rollout(said))
        assert isinstance(graded, Failure), graded
        assert (graded.kind, graded.blame) == ("parse", "candidate")


def test_a_choice_may_be_named_by_its_text(tmp_path: Path):
    (case,) = read(tmp_path, [row(0)])
    graded = LiveMathematicianBench().grade(case, Rollout("thinking\n$G$ is cyclic."))
    assert isinstance(graded, Graded) and graded.hard == graded.soft == 1


def test_all_that_is_wrong_with_the_data_is_told_at_once(tmp_path: Path):
    good = row(0)
    broken: list[dict[str, Any]] = [
        {**good, "mcq": {**good["mcq"], "question": ""}},
        {**good, "mcq": {**good["mcq"], "choices": []}},
        {**good, "mcq": {**good["mcq"], "correct_choice": None}},
        {**good, "mcq": {**good["mcq"], "correct_choice": "G"}},
        {**good, "mcq": {"question": "q", "choices": ["x", "x"], "correct_choice": "A"}},
    ]
    with pytest.raises(SpecError) as raised:
        read(tmp_path, broken)
    told = [problem.message for problem in raised.value.problems]
    assert told == [
        "`question` is empty, where a text was expected",
        "there are no `choices`",
        "there is no `correct_choice`",
        "the `correct_choice` is none of the choices",
        "a wrong choice has the text of the right one",
    ]
    lines = [(problem.place or ("", 0))[1] for problem in raised.value.problems]
    assert lines == sorted(lines) and len(set(lines)) == 5


def test_the_published_ids_are_those_of_the_loader():
    rows = json.loads(
        shared("skillopt_splits", "livemathematicianbench", "val", "items.json").read_text()
    )
    assert rows and all(one["id"] == f"{one['month']}:{one['no']}" for one in rows)
