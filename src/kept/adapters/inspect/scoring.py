"""What scorers of Inspect's said, as numbers: never one that they did not say."""

from collections.abc import Mapping
from math import isnan
from typing import Any, cast

from kept.core.rollout import Failure
from kept.evaluators.runners.function import LONGEST, number_of

METRIC = "score"

GRADES = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
"""Correct, partly, incorrect, no answer: as Inspect counts them."""

WORDS = {"yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}


def number_in(value: object) -> float | None:
    """A value of a score as a number; None for what Inspect would only guess at."""
    if isinstance(value, str):
        known = GRADES.get(value, WORDS.get(value.lower()))
        if known is not None:
            return known
        try:
            value = float(value)
        except ValueError:
            return None
    number = number_of(value)
    return None if number is None or isnan(number) else number


def metrics_of(scores: Mapping[str, Any], which: str | None) -> dict[str, float] | Failure:
    """All that is a number, by the name of its scorer, and the one that decides."""
    found: dict[str, float] = {}
    for name, score in scores.items():
        for key, value in _values(name, score.value):
            number = number_in(value)
            if number is not None:
                found[key] = number
    if not scores:
        return _nothing("the scorers gave no score")
    first, score = next(iter(scores.items()))
    chosen = which or first
    if chosen in found:
        return {**found, METRIC: found[chosen]}
    head = chosen.partition(".")[0]
    score = scores.get(chosen, scores.get(head, score))
    several = [key for key in found if key.startswith(f"{head}.")]
    if several:
        words = f'`{head}` gives several values: name one, as in scorer="{several[0]}"'
        return _nothing(f"{words}; there are {', '.join(several)}")
    return _nothing(f"`{chosen}` gave {score.value!r:.100}, which is no score")


def feedback_of(scores: Mapping[str, Any], answer: str) -> str:
    """What scorers said in words, each by its name."""
    lines: list[str] = []
    for name, score in scores.items():
        told = score.value if isinstance(score.value, str) else f"{score.value}"
        why = (score.explanation or "").strip()
        # many scorers explain themselves by the answer once more
        lines.append(f"{name}: {told}" + (f" ({why})" if why and why != answer.strip() else ""))
    return "\n".join(lines)


def _values(name: str, value: object) -> list[tuple[str, object]]:
    if isinstance(value, Mapping):
        return [(f"{name}.{key}", one) for key, one in cast("Mapping[str, object]", value).items()]
    return [(name, value)]


def _nothing(words: str) -> Failure:
    return Failure("harness", "infrastructure", words[:LONGEST], scoring=True)
