"""A comparison as text for a person at a terminal."""

import textwrap
from collections.abc import Iterator

from kept.results.compare import Comparison, Planned
from kept.results.summary import Summary
from kept.ui.cli import _output
from kept.ui.report.compare import found_alike, interval, sentences, short
from kept.ui.report.format import count, number

WIDTH = 88


def compared_text(told: Comparison, about: Summary) -> str:
    """The answers in words, then the figures in a table."""
    words = "\n".join(textwrap.fill(line, WIDTH) for line in sentences(told, about.spend))
    rows = _forecasts(told.planned, about) if told.planned else _rows(told, about)
    return "\n\n".join(part for part in (_output.visible(words), *rows) if part)


def _rows(told: Comparison, about: Summary) -> Iterator[str]:
    if not told.lines:
        return
    header = ("challenger", about.metric, told.seed, "difference", "cases", "rollouts", "answer")
    rows = [
        (
            line.label,
            "" if line.value is None else number(line.value),
            "" if line.seed_value is None else number(line.seed_value),
            interval(line),
            f"{line.numbers['cases']:.0f} × {line.numbers['passes']:.0f}" if line.numbers else "",
            str(line.rollouts) if line.rollouts else "",
            line.answer,
        )
        for line in told.lines
    ]
    right = header[1:6]
    yield _output.table(header, rows, right=right, whole=("answer",), middle=("challenger",))


def _forecasts(told: Planned, about: Summary) -> Iterator[str]:
    spend = about.spend
    each = spend.usd / spend.rollouts if spend.rollouts else 0.0
    header = ["passes", "rollouts", "same on every case", "at worst"]
    header += ["cost"] if each else []
    rows = [
        [
            str(row.passes),
            f"{row.rollouts:,}",
            found_alike(row, told),
            short(row.worst),
            *([f"${row.rollouts * each:,.2f}"] if each else []),
        ]
        for row in told.forecasts
    ]
    yield _output.table(header, rows, right=header)
    yield (
        f"{about.metric} {number(told.seed_value)}; answers to one case differ by "
        f"{short(told.noise)} (standard deviation), cases by {short(told.between)}; measured in "
        f"{count(spend.rollouts, 'rollout')}"
    )
