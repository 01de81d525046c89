"""Deterministic metrics: BLEU, ROUGE, METEOR, string and number comparison, JSON paths.

BLEU, ROUGE and METEOR are counted by the usual libraries, the extra `metrics`. They are imported
at first use. Nothing is downloaded: METEOR runs without its synonym corpus.

Similarity takes time proportional to the product of both lengths, and an answer may have any
length. So long texts are compared in a separate process with a time limit.

JSON answers can be compared by the path of one value: `a.b[0].c`.
"""

import math
import re
import string
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any, assert_never, cast

from kept.core.parsing import parse_json
from kept.core.rollout import Failure
from kept.core.text import one_line
from kept.evaluators.metrics.config import (
    Likeness,
    Measured,
    StandardMetric,
    unmeasured,
    unreadable,
)
from kept.evaluators.workers.pool import FunctionPool
from kept.sandbox.worker_pool import START_SECONDS, bounded_start
from kept.settings import install_command, processors

LIBRARIES: Mapping[Likeness, str] = {"bleu": "sacrebleu", "rouge": "rouge_score", "meteor": "nltk"}

_WORD = re.compile(r"[^\W_]+")
_WORD_OR_MARK = re.compile(r"\w+|[^\w\s]")


def missing_library(metric: Likeness) -> str | None:
    """Library to install for a metric; None if it is installed."""
    return None if find_spec(LIBRARIES[metric]) else LIBRARIES[metric]


def likeness(metric: Likeness, response: str, truth: str) -> Measured:
    """Compute BLEU, ROUGE or METEOR, from 0 to 1."""
    match metric:
        case "bleu":
            from sacrebleu import sentence_bleu

            found: Any = sentence_bleu(response, [truth], smooth_method="exp")
            return Measured(_between_0_and_1(found.score / 100))
        case "rouge":
            return _rouge(response, truth)
        case "meteor":
            from nltk.translate.meteor_score import single_meteor_score  # pyright: ignore[reportMissingTypeStubs]

            score: Any = single_meteor_score
            words = [_WORD_OR_MARK.findall(text) for text in (truth, response)]
            return Measured(_between_0_and_1(score(*words, wordnet=_NoSynonyms())))
        case _:
            assert_never(metric)


def _rouge(response: str, truth: str) -> Measured:
    from rouge_score.rouge_scorer import RougeScorer  # pyright: ignore[reportMissingTypeStubs]

    scorer: Any = RougeScorer(["rouge1", "rouge2", "rougeL"], tokenizer=_Words())
    found = {
        name: _between_0_and_1(one.fmeasure) for name, one in scorer.score(truth, response).items()
    }
    return Measured(found["rougeL"], details=found)


def _between_0_and_1(score: float) -> float:
    # equal texts come to 1.0000000000000004 in sacrebleu
    return min(1.0, max(0.0, float(score)))


class _Words:
    """Tokenizer for any script: the library's own knows only a–z, and no Cyrillic."""

    def tokenize(self, text: str) -> Sequence[str]:
        return _WORD.findall(text.casefold())


class _NoSynonyms:
    """Empty stand-in for the WordNet corpus, which would have to be downloaded."""

    def synsets(self, word: str) -> Sequence[object]:
        return ()


QUICK = 500_000
"""Product of two lengths up to which a comparison takes at most 0.1 s."""

_LIKENESS = f"{__name__}:likeness"


class Alike:
    """Similarity of texts; long ones run in processes, started on demand and reused."""

    def __init__(self) -> None:
        self._pool = FunctionPool(
            bounded_start(_LIKENESS), START_SECONDS, processors(), name=_LIKENESS
        )

    async def measure(
        self, metric: Likeness, response: str, truth: str, seconds: float
    ) -> Measured | Failure:
        """Compute a similarity, in a process if the texts are long."""
        if library := missing_library(metric):
            message = f"`{metric}` needs `{library}`: {install_command('metrics')}"
            return Failure("harness", "infrastructure", message)
        if len(response) * len(truth) <= QUICK:
            return likeness(metric, response, truth)
        given = {"metric": metric, "response": response, "truth": truth}
        result = await self._pool.result({"given": given, "seconds": seconds}, seconds, "timeout")
        return result if isinstance(result, Failure) else Measured(*result)

    def close(self) -> None:
        """End the processes."""
        self._pool.close()


SHOWN = 200
"""Characters of an answer that a reason quotes. Expected answers are never quoted, for proposers
read reasons."""

_PUNCTUATION = str.maketrans("", "", string.punctuation)
# comma, underscore, blank, and the blanks that keep a number on its line
_SEPARATORS = re.compile("[,_ \u00a0\u202f]")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def quoted(text: str) -> str:
    """An answer inside a sentence."""
    return f"`{one_line(text[: 4 * SHOWN], SHOWN)}`"


def equality(settings: StandardMetric, response: str, truth: str) -> Measured:
    """1 if both texts are equal after the normalization of the settings."""
    if _plain(settings, response) == _plain(settings, truth):
        return Measured(1.0, True)
    return Measured(0.0, False, f"{quoted(response)} is not what was expected")


def _plain(settings: StandardMetric, text: str) -> str:
    if settings.case_insensitive:
        text = text.casefold()
    if settings.strip_punctuation:
        text = text.translate(_PUNCTUATION)
    return " ".join(text.split()) if settings.strip_whitespace else text


def numeric(settings: StandardMetric, response: str, truth: str) -> Measured:
    """1 if both are numbers within one of the tolerances."""
    wanted = number_in(settings, truth)
    if wanted is None:
        return unmeasured("`ground_truth` of the case is not a number")
    found = number_in(settings, response)
    if found is None:
        return unreadable(f"{quoted(response)} is not a number")
    apart = abs(found - wanted)
    near = apart <= settings.absolute_tolerance
    if near or apart <= settings.relative_tolerance * abs(wanted):
        return Measured(1.0, True)
    return Measured(0.0, False, f"{quoted(response)} is too far from what was expected")


def number_in(settings: StandardMetric, given: object) -> float | None:
    """Number in a text, read as the settings say; None if it is none."""
    text = str(given).strip()
    percent = settings.accept_percent and text.endswith("%")
    if percent:
        text = text[:-1].strip()
    if settings.accept_thousands_separators:
        text = _SEPARATORS.sub("", text)
    if not _NUMBER.fullmatch(text):
        return None
    value = float(text) / (100 if percent else 1)
    return value if math.isfinite(value) else None


_STEP = re.compile(r"(\w[\w-]*)|\[(\d+)\]")


class NoValue(ValueError):
    """Answer without a value at the path; the message says why."""


def value_at(answer: str, path: str) -> str:
    """Value at a path as text; raises `NoValue` if there is none, or more than one."""
    try:
        value: Any = parse_json(answer)
    except ValueError as error:
        raise NoValue(f"the answer is not JSON: {error}") from error
    been = ""
    for match in _STEP.finditer(path):
        # 18 digits are enough for any index; `int` of very long texts raises
        step = match[1] if match[1] is not None else int(match[2][:18])
        been += f"[{step}]" if isinstance(step, int) else f".{step}" if been else step
        try:
            # a text cannot be indexed here, though Python allows it
            if not isinstance(value, list if isinstance(step, int) else dict):
                raise TypeError
            value = cast("Any", value)[step]
        except (LookupError, TypeError) as error:
            raise NoValue(f"the answer has nothing at `{been}`") from error
    if isinstance(value, dict | list):
        raise NoValue(f"what stands at `{path}` of the answer is not a single value")
    return str(cast("object", value))
