import asyncio
from pathlib import Path

import pytest

from kept.core.artifact import Candidate
from kept.core.case import Case
from kept.core.llm import ModelRequest
from kept.core.rollout import Failure, Job, Rollout
from kept.engine.replay import JournalScope
from kept.evaluators.environments.base import Graded
from kept.evaluators.environments.chat_student import ChatRunner
from kept.evaluators.environments.qa import SearchQa, cut_documents, likeness, normal, token_f1
from kept.testing import EnvironmentSuite, MemoryJournal, ScriptedModel
from tests.evaluators.environments.shared import shared

DATA = Path(__file__).parent / "data"


class TestSearchQa(EnvironmentSuite):
    def make_env(self):
        return SearchQa()

    def data(self):
        return DATA / "searchqa.json"

    def solving(self, case: Case):
        return [f"It must be <answer>The {case.data['answers'][0]}!</answer>"]  # type: ignore[index] # a row

    def failing(self, case: Case):
        return ["<answer>Isaac Newton</answer>"]

    def metrics(self):
        return ("em", "f1", "sub_em")


class TestSearchQaWithSecondThoughts(TestSearchQa):
    def make_env(self):
        return SearchQa(max_turns=2)

    def solving(self, case: Case):
        return ["<answer>Isaac Newton</answer>", *super().solving(case)]

    def failing(self, case: Case):
        return [*super().solving(case), "<answer>Isaac Newton</answer>"]


@pytest.mark.parametrize(
    ("answer", "gold", "f1"),
    [
        ("Copernicus", "copernicus", 1.0),
        ("the Copernicus.", "Copernicus", 1.0),
        ("Nicolaus Copernicus", "Copernicus", 2 / 3),
        ("Newton", "Copernicus", 0.0),
        ("The", "a", 1.0),
        ("The", "Copernicus", 0.0),
        ("no no yes", "no yes yes", 2 / 3),
    ],
)
def test_f1_counts_words_as_squad_does(answer: str, gold: str, f1: float):
    assert token_f1(answer, gold) == pytest.approx(f1)


BY_HAND: list[tuple[str, str, float, float, float]] = [
    # without case, punctuation, articles and further blanks; then whether both are the same, twice
    # the words in common by all words, and whether the expected words stand in a row
    ("Copernicus", "copernicus", 1, 1, 1),
    ("the Copernicus.", "Copernicus", 1, 1, 1),
    ("  The   Beatles ", "beatles", 1, 1, 1),
    ("an apple a day", "apple day", 1, 1, 1),
    ("U.S.A.", "USA", 1, 1, 1),
    ("Anne's", "Annes", 1, 1, 1),
    ("$5 million", "5 million", 1, 1, 1),
    ("É", "é", 1, 1, 1),
    ("Nicolaus Copernicus", "Copernicus", 0, 2 / 3, 1),
    ("Copernicus", "Nicolaus Copernicus", 0, 2 / 3, 0),
    ("in the year 1969", "1969", 0, 2 / 4, 1),
    ("1969 and 1970", "1969", 0, 2 / 4, 1),
    ("New York City", "New York", 0, 4 / 5, 1),
    ("York New", "New York City", 0, 4 / 5, 0),
    ("Rome, Italy", "Italy, Rome", 0, 1, 0),
    ("Beatles Beatles", "Beatles", 0, 2 / 3, 1),
    ("no no yes", "no yes yes", 0, 4 / 6, 0),
    ("5", "5 million", 0, 2 / 3, 0),
    ("Newton", "Copernicus", 0, 0, 0),
    ("U. S. A.", "USA", 0, 0, 0),
    ("forty-two", "forty two", 0, 0, 0),
    ("42", "42.0", 0, 0, 0),
    ("theater", "the ater", 0, 0, 0),
    ("An", "Anne", 0, 0, 0),
    ("Romania", "Roman", 0, 0, 0),
]


@pytest.mark.parametrize(("answer", "gold", "em", "f1", "inside"), BY_HAND)
def test_answers_as_compared_by_hand(answer: str, gold: str, em: float, f1: float, inside: float):
    found = likeness(answer, [gold])
    assert (found.exact, found.inside) == (em, inside)
    assert found.f1 == pytest.approx(f1)


def test_the_best_of_the_expected_answers_counts():
    found = likeness("It was Nicolaus Copernicus", ["Newton", "Copernicus"])
    assert (found.exact, found.inside) == (0.0, 1.0)
    assert found.f1 == pytest.approx(2 / 5)


def test_an_expected_answer_inside_a_word_is_not_inside():
    assert likeness("Romania", ["Roman"]).inside == 0.0


def test_normal_form_leaves_letters_and_digits():
    assert normal("  The U.S.A., a   state's 50! ") == "usa states 50"


def test_context_is_cut_by_whole_passages_and_said():
    env = SearchQa(max_context_chars=70)
    posed = env.pose(_case())
    assert "Arcetri" in posed.prompt
    assert "heliocentric" not in posed.prompt
    assert "[2 more passages are left out]" in posed.prompt
    assert posed.notes == ("2 more passages are left out: the limit is 70 characters",)


def test_a_first_passage_that_is_too_long_is_cut_at_a_word_and_said():
    context, left = cut_documents("[DOC] one two three four [DOC] five", 17)
    assert context == "[DOC] one two"
    assert left == "the first passage is cut short, 1 more are left out"


def test_all_passages_are_shown_where_there_is_no_limit():
    text = "[DOC] " + "word " * 5000
    context, left = cut_documents(text, 0)
    assert len(context) > 20_000
    assert not left


def test_a_second_look_keeps_the_question_and_the_passages():
    """The original's second turn had lost both."""
    asked: list[ModelRequest] = []

    def script(request: ModelRequest) -> str:
        asked.append(request)
        return "<answer>Copernicus</answer>"

    rollout = _run(SearchQa(max_turns=2), ScriptedModel(script))
    assert isinstance(rollout, Rollout)
    assert len(asked) == 2
    texts = [message.text for message in asked[1].messages]
    assert "heliocentric" in texts[1]
    assert "house arrest for" in texts[1]
    assert texts[2] == "<answer>Copernicus</answer>"


def test_an_answer_without_tags_is_the_whole_reply():
    graded = SearchQa().grade(_case(), Rollout(output="Copernicus"))
    assert isinstance(graded, Graded)
    assert graded.hard == 1


def test_an_empty_answer_is_a_failure_and_no_zero():
    graded = SearchQa().grade(_case(), Rollout(output="<answer> </answer>"))
    assert isinstance(graded, Failure)
    assert (graded.kind, graded.blame) == ("empty", "candidate")


def test_a_partly_right_answer_is_not_solved():
    graded = SearchQa().grade(_case(), Rollout(output="<answer>Mikolaj Copernicus</answer>"))
    assert isinstance(graded, Graded)
    assert graded.hard == 0
    assert graded.soft == pytest.approx(2 / 3)


def test_real_rows_without_id_and_context_are_read():
    path = shared("searchqa", "tiny_dataset.json")
    items = list(SearchQa().read(path))
    assert len(items) >= 5
    assert items[0].case.id == "tiny_dataset-1"
    assert items[1].where == f"{path}:11"
    assert SearchQa().about(items[0].case).reference == "Copernicus"


def _case() -> Case:
    return next(iter(SearchQa().read(DATA / "searchqa.json"))).case


def _run(env: SearchQa, model: ScriptedModel) -> Rollout | Failure:
    async def once() -> Rollout | Failure:
        runner, case = ChatRunner(env, model), _case()
        candidate = Candidate({"SKILL.md": "Be brief."})
        job = Job(candidate.id, case.id, 0, "decide")
        return await runner.run(job, candidate, case, JournalScope(MemoryJournal(), job))

    return asyncio.run(once())
