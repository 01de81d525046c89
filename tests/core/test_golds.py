from kept.core.artifact import Candidate
from kept.core.guards import gold_guard

SEED = Candidate({"SKILL.md": "Answer in one word.\n"})


def refused(text: str, answers: list[tuple[str, str]], tasks: tuple[str, ...] = ()) -> str | None:
    return gold_guard(answers, tasks).check(SEED, SEED, Candidate({"SKILL.md": text}))


def test_an_answer_that_comes_into_the_skill_is_refused_and_not_told():
    told = refused("Answer in one word.\nFor rivers say Orinoco.\n", [("q1", "Orinoco")])
    assert told is not None and "SKILL.md:2" in told and "q1" in told and "Orinoco" not in told


def test_an_answer_is_known_in_any_spelling():
    assert refused("say ORINOCO!", [("q1", "the  Orinoco".removeprefix("the  "))])
    assert refused("it is new york city", [("q1", "New York City")])
    assert refused("it is york city", [("q1", "New York City")]) is None


def test_labels_short_answers_and_common_words_are_free():
    labels = [(f"q{n}", "positive") for n in range(4)]
    assert refused("say positive", labels) is None
    assert refused("say yes or 42", [("q1", "yes"), ("q2", "42")]) is None
    tasks = tuple(f"which water is meant, number {n}" for n in range(5))
    assert refused("look at the water", [("q1", "water")], tasks) is None


def test_what_the_skill_had_before_may_stay():
    before = Candidate({"SKILL.md": "mind the Orinoco\n"})
    after = Candidate({"SKILL.md": "mind the Orinoco\nand more\n"})
    assert gold_guard([("q1", "Orinoco")]).check(before, before, after) is None
