"""Metrics that compare with the ground truth character by character, or as numbers. Pure."""

import math
import re
import string

from kept.core.words import one_line
from kept.evaluators.metrics.config import StandardMetric
from kept.evaluators.metrics.subject import Measured, unmeasured, unreadable

SHOWN = 200
"""Characters of an answer that a reason quotes; of what was expected it quotes none, for
proposers read reasons."""

_PUNCTUATION = str.maketrans("", "", string.punctuation)
# comma, underscore, blank, and the blanks that keep a number on its line
_SEPARATORS = re.compile("[,_ \u00a0\u202f]")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def quoted(text: str) -> str:
    """An answer inside a sentence."""
    return f"`{one_line(text[: 4 * SHOWN], SHOWN)}`"


def equality(settings: StandardMetric, response: str, truth: str) -> Measured:
    """1 where both texts are the same, after what the settings take away."""
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
    """1 where both are numbers, no further apart than one of the tolerances allows."""
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
    """The number that a text is, read as the settings say; None where it is none."""
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
