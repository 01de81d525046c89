"""How much of an answer's words are those of the ground truth: bleu, rouge and meteor.

The counting is that of the libraries that people know these numbers from. Nothing is fetched: where
one of them would look up synonyms in a corpus, it is told that there are none. They are imported
when first needed, and are the extra `metrics`.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from kept.evaluators.metrics.config import Likeness
from kept.evaluators.metrics.subject import Measured

LIBRARIES: Mapping[Likeness, str] = {"bleu": "sacrebleu", "rouge": "rouge_score", "meteor": "nltk"}

_WORD = re.compile(r"[^\W_]+")
_WORD_OR_MARK = re.compile(r"\w+|[^\w\s]")


def missing_library(metric: Likeness) -> str | None:
    """What has to be installed first; None where it is there."""
    return None if find_spec(LIBRARIES[metric]) else LIBRARIES[metric]


def likeness(metric: Likeness, response: str, truth: str) -> Measured:
    """One of them, between 0 and 1."""
    return _MEASURES[metric](response, truth)


def _bleu(response: str, truth: str) -> Measured:
    from sacrebleu import sentence_bleu

    found: Any = sentence_bleu(response, [truth], smooth_method="exp")
    return Measured(_between_0_and_1(found.score / 100))


def _rouge(response: str, truth: str) -> Measured:
    from rouge_score.rouge_scorer import RougeScorer  # pyright: ignore[reportMissingTypeStubs]

    scorer: Any = RougeScorer(["rouge1", "rouge2", "rougeL"], tokenizer=_Words())
    found = {
        name: _between_0_and_1(one.fmeasure) for name, one in scorer.score(truth, response).items()
    }
    return Measured(found["rougeL"], details=found)


def _meteor(response: str, truth: str) -> Measured:
    from nltk.translate.meteor_score import single_meteor_score  # pyright: ignore[reportMissingTypeStubs]

    score: Any = single_meteor_score
    words = [_WORD_OR_MARK.findall(text) for text in (truth, response)]
    return Measured(_between_0_and_1(score(*words, wordnet=_NoSynonyms())))


def _between_0_and_1(score: float) -> float:
    # equal texts come to 1.0000000000000004 in sacrebleu
    return min(1.0, max(0.0, float(score)))


class _Words:
    """Words of any script: the library's own sees those of a–z alone, and nothing in Cyrillic."""

    def tokenize(self, text: str) -> Sequence[str]:
        return _WORD.findall(text.casefold())


class _NoSynonyms:
    """Stands for a corpus that would have to be fetched."""

    def synsets(self, word: str) -> Sequence[object]:
        return ()


_MEASURES: Mapping[Likeness, Callable[[str, str], Measured]] = {
    "bleu": _bleu,
    "rouge": _rouge,
    "meteor": _meteor,
}
