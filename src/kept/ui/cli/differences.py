"""Two runs that measured, side by side, for a person at a terminal."""

from collections.abc import Sequence
from math import isfinite

from kept.core.words import count, one_line
from kept.ui.cli import _output
from kept.ui.report.difference import Answer, Difference, Flip, Shift
from kept.ui.report.format import number

COLOURS: dict[Answer, str] = {"better": "green", "worse": "red"}
MAX_FLIPS = 40


def difference_text(told: Difference) -> str:
    """The answer, the figures, then the cases that flipped."""
    first = told.shifts[0]
    head = _output.style(_headline(told, first), bold=True, fg=COLOURS.get(first.answer))
    parts = [head, _table(told), _flips("better", told.better), _flips("worse", told.worse)]
    if told.apart:
        names = one_line(", ".join(told.apart), 100)
        parts.append(f"{count(len(told.apart), 'case')} measured in one run only: {names}")
    return "\n\n".join(part for part in parts if part)


def _headline(told: Difference, first: Shift) -> str:
    words = {
        "better": "the second run is better",
        "worse": "the second run is worse",
        "the same": "both runs are the same",
        "cannot tell": "these cases cannot tell the two runs apart",
    }[first.answer]
    return f"{words}: {first.metric} {number(first.was)} → {number(first.now)}"


def _table(told: Difference) -> str:
    rows = [
        (
            shift.metric,
            number(round(shift.was, 4)),
            number(round(shift.now, 4)),
            f"{shift.gain:+.3f}{_interval(shift)}",
            str(shift.cases),
            shift.answer,
        )
        for shift in told.shifts
    ]
    header = ("metric", "first", "second", "difference (95 %)", "cases", "answer")
    return _output.table(header, rows, right=header[1:5], whole=("answer",))


def _interval(shift: Shift) -> str:
    if not (isfinite(shift.low) and isfinite(shift.high)):
        return " (too few cases)"
    return f" ({shift.low:+.3f} … {shift.high:+.3f})"


def _flips(word: str, flips: Sequence[Flip]) -> str:
    if not flips:
        return ""
    header = (word, "was", "is", "why")
    rows = [
        (flip.case, _share(flip.was), _share(flip.now), one_line(flip.why, 120))
        for flip in flips[:MAX_FLIPS]
    ]
    text = _output.table(header, rows, middle=(word,))
    more = len(flips) - MAX_FLIPS
    return text + (f"\n{more} more are not shown: --json lists all" if more > 0 else "")


def _share(value: float) -> str:
    return {0.0: "fails", 1.0: "passes"}.get(value, f"passes {value:.0%}")
