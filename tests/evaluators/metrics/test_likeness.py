"""Bleu, rouge and meteor against numbers that were worked out by hand."""

import asyncio
from math import exp

import pytest

from kept.core.rollout import Failure
from kept.evaluators.metrics.config import Measured
from kept.evaluators.metrics.deterministic import QUICK, Alike, likeness
from tests.evaluators.metrics.talking import score, scorer, talk

MAT = "the cat sat on the mat"


def alike(metric: str, response: str, truth: str, seconds: float = 60.0) -> Measured | Failure:
    one = Alike()
    try:
        return asyncio.run(one.measure(metric, response, truth, seconds))  # pyright: ignore[reportArgumentType] # one of the three
    finally:
        one.close()


@pytest.mark.parametrize(
    ("metric", "response", "value"),
    [
        # all of 1-, 2- and 3-grams are right; 3 words for 6: the penalty is e^(1 - 6/3)
        ("bleu", "the cat sat", exp(-1)),
        # 5 of 6 words, 4 of 5 pairs, 3 of 4 triples, 2 of 3 fours
        ("bleu", "the cat sat on the rug", (5 / 6 * 4 / 5 * 3 / 4 * 2 / 3) ** (1 / 4)),
        # the longest common row of words is 3: precision 3/3, recall 3/6
        ("rouge", "the cat sat", 2 * 1 * 0.5 / 1.5),
        # `on` is out of order: `the cat sat` is the longest row, 3 of 4 words and 3 of 6
        ("rouge", "on the cat sat", 2 * (3 / 4) * (3 / 6) / (3 / 4 + 3 / 6)),
        # 3 matches in one chunk: F = (1 * 0.5) / (0.9 * 1 + 0.1 * 0.5), penalty 0.5 * (1/3)³
        ("meteor", "cat sat on", 0.5 / 0.95 * (1 - 0.5 / 27)),
        # stems count: `cats` is `cat`, and `mats` is `mat`; each match is a chunk of its own
        ("meteor", "cats on mats", 0.5 / 0.95 * (1 - 0.5)),
    ],
)
def test_a_likeness_is_what_its_formula_says(metric: str, response: str, value: float):
    said = alike(metric, response, MAT)
    assert isinstance(said, Measured)
    assert said.score == pytest.approx(value, abs=1e-9)


@pytest.mark.parametrize("metric", ["bleu", "rouge", "meteor"])
@pytest.mark.parametrize("response", [MAT, "", "nothing of it", "\x00{[\ufffd", "кот", "a" * 5000])
def test_it_is_between_0_and_1_whatever_is_compared(metric: str, response: str):
    said = alike(metric, response, MAT)
    assert isinstance(said, Measured) and said.score is not None
    assert 0.0 <= said.score <= 1.0


def test_equal_texts_are_exactly_1_where_the_library_says_a_little_more():
    # 1.0000000000000004 of sacrebleu ended whole runs of others
    for words in range(1, 40):
        text = " ".join(f"w{n}" for n in range(words))
        assert likeness("bleu", text, text).score == 1.0


def test_rouge_is_that_of_the_longest_row_and_tells_the_others_too():
    said = likeness("rouge", "the cat sat", MAT)
    assert said.score == said.details["rougeL"]
    assert said.details["rouge2"] == pytest.approx(2 * (2 / 2) * (2 / 5) / (1 + 2 / 5))


def test_rouge_through_the_scorer_is_not_always_0():
    """Bug 12: the evaluator told rouge1, rouge2 and rougeL, and `rouge` was looked for."""
    found = score(scorer([{"metric": "rouge"}]), talk("the cat sat"), {"ground_truth": MAT})
    assert found.metrics == {"rouge": pytest.approx(2 / 3), "passed": 1.0}


def test_words_of_other_scripts_are_words():
    assert likeness("rouge", "кот сидит", "кот сидит").score == 1.0


def test_meteor_looks_for_no_synonyms_which_it_would_have_to_fetch():
    assert likeness("meteor", "automobile", "car").score == 0.0


def test_long_texts_are_compared_apart_and_come_to_the_same():
    words = [f"w{n % 97}" for n in range(250)]
    response, truth = " ".join(words), " ".join(reversed(words))
    assert len(response) * len(truth) > QUICK
    assert alike("rouge", response, truth) == likeness("rouge", response, truth)


def test_what_takes_too_long_is_given_up():
    text = " ".join(f"w{n}" for n in range(20_000))
    late = alike("rouge", text, text, 0.5)
    assert isinstance(late, Failure) and (late.kind, late.blame) == ("timeout", "infrastructure")
