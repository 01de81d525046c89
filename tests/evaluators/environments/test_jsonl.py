import json
from pathlib import Path

import pytest

from kept.core.case import Case
from kept.core.rollout import Failure, Rollout
from kept.errors import SpecError
from kept.evaluators.environments.base import Graded
from kept.evaluators.environments.jsonl import Jsonl, Measure
from kept.testing import EnvironmentSuite

DATA = Path(__file__).parent / "data" / "capitals.csv"


class TestJsonl(EnvironmentSuite):
    def make_env(self):
        return Jsonl(question_field="ask", answer_field="gold", type_field="region")

    def data(self):
        return DATA

    def solving(self, case: Case):
        return [f"<answer>{self.make_env().about(case).reference}</answer>"]

    def failing(self, case: Case):
        return ["<answer>Atlantis</answer>"]


@pytest.mark.parametrize(
    ("measure", "answer", "hard"),
    [
        ("exact", "the Paris!", 1),
        ("exact", "It is Paris", 0),
        ("contains", "It is Paris", 1),
        ("f1", "Paris", 1),
        ("f1", "Paris city", 0),
    ],
)
def test_what_is_right_is_as_the_config_says(
    tmp_path: Path, measure: Measure, answer: str, hard: int
):
    graded = _graded(tmp_path, Jsonl(measure=measure), "Paris", answer)
    assert isinstance(graded, Graded)
    assert graded.hard == hard


def test_numbers_are_compared_as_numbers(tmp_path: Path):
    env = Jsonl(measure="number")
    right, wrong = (_graded(tmp_path, env, 1200, text) for text in ("1,200.0", "1201"))
    assert isinstance(right, Graded)
    assert isinstance(wrong, Graded)
    assert (right.hard, wrong.hard) == (1, 0)
    none = _graded(tmp_path, env, 1200, "many")
    assert isinstance(none, Failure)
    assert none.blame == "candidate"


def test_context_is_shown_above_the_question(tmp_path: Path):
    row = {"question": "Who?", "answer": "Ann", "context": "Ann did it."}
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(row))
    env = Jsonl(context_field="context")
    case = next(iter(env.read(path))).case
    assert env.pose(case).prompt == "Ann did it.\n\nWho?"


def test_a_column_that_is_not_there_is_named_for_each_row(tmp_path: Path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"question": "a", "answer": "b"}\n{"question": "c", "answer": "d"}\n')
    with pytest.raises(SpecError) as error:
        list(Jsonl(type_field="kind").read(path))
    said = [str(one) for one in error.value.problems]
    assert said == [f"{path}:{line} there is no `kind`" for line in (1, 2)]


def _graded(folder: Path, env: Jsonl, gold: object, answer: str) -> Graded | Failure:
    path = folder / "a.jsonl"
    path.write_text(json.dumps({"question": "Which?", "answer": gold}))
    return env.grade(next(iter(env.read(path))).case, Rollout(output=answer))
