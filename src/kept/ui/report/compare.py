"""Text of a comparison: one answer per challenger, and the evidence for it."""

from collections.abc import Iterator

from kept.core.budget import Spend
from kept.gates.compare import Forecast
from kept.results.compare import Comparison, Line, Planned


def short(number: float, sign: str = "") -> str:
    """Number with three significant digits, whole from 1,000 on: `0.0375`, `+12.3`, `1,234`."""
    return f"{number:{sign},.0f}" if abs(number) >= 1000 else f"{number:{sign}.3g}"


def found_alike(row: Forecast, told: Planned) -> str:
    """Detectable gain if it is equal on every case; `any` if answers do not vary."""
    return short(row.alike) if told.noise else "any"


HEADS = {
    "better": "{new} is better than {old}",
    "not better": "{new} is not better than {old}",
    "worse": "{new} is worse than {old}",
    "cannot tell": "cannot tell whether {new} is better than {old}",
    "open": "{new} has no answer yet",
    "failed": "{new} could not be compared",
}


def title(told: Comparison) -> str:
    """Answer in one line."""
    if told.plans:
        return f"what a comparison with {told.seed} could show"
    if len(told.lines) == 1:
        (line,) = told.lines
        return HEADS[line.answer].format(new=line.label, old=told.seed)
    by_answer: dict[str, list[str]] = {}
    for line in told.lines:
        by_answer.setdefault(line.answer, []).append(line.label)
    parts = [f"{', '.join(labels)} {answer}" for answer, labels in by_answer.items()]
    return f"against {told.seed}: {'; '.join(parts)}"


def answers(told: Comparison) -> str:
    """`new.md better +0.333` for each challenger; empty if none was compared."""
    found = (
        f"{line.label} {line.answer}"
        + ("" if line.difference is None else f" {short(line.difference, '+')}")
        for line in told.lines
    )
    return "; ".join(found)


def sentences(told: Comparison, spend: Spend) -> Iterator[str]:
    """Full text of the comparison, a sentence or two for each challenger."""
    if told.planned is not None:
        yield from _planned(told.planned, told.seed)
    elif told.plans:
        yield f"The noise of {told.seed} was not measured: {told.reason or 'it has not run'}."
    each = spend.usd / spend.rollouts if spend.rollouts else 0.0
    for line in told.lines:
        yield " ".join(_said(line, told, each))


def _said(line: Line, told: Comparison, usd: float) -> Iterator[str]:
    new, old, least = line.label, told.seed, line.numbers.get("least", 0.0)
    match line.answer:
        case "better":
            yield f"{new} is better than {old} for cases like these{_by(line)}."
        case "worse":
            yield f"{new} is worse than {old} for cases like these{_by(line)}."
        case "not better" if "constraint" in line.reason:
            yield f"{new} is not better than {old}: {line.reason}."
        case "not better":
            yield (
                f"{new} is not better than {old} by more than {short(least)} for cases like these"
                f"{_by(line)}."
            )
        case "cannot tell":
            yield (
                f"Cannot tell with these {told.cases} cases whether {new} is better than {old}"
                f"{_by(line)}."
            )
            yield from _wanted(line, usd, least)
        case "open":
            yield f"{new} has no answer yet."
        case _ if line.crashed:
            yield f"{new} is no better than {old}: {line.reason}."
        case _:
            yield f"{new} could not be compared: {line.reason}."
    if line.answer in ("cannot tell", "not better") and line.here != "cannot tell":
        yield f"On these very cases it is {line.here}; for new ones that is not shown."


def _by(line: Line) -> str:
    if line.difference is None:
        return f": {line.reason}"
    return f": {interval(line)}"


def interval(line: Line) -> str:
    """Measured difference with the bounds of the true one."""
    if line.difference is None:
        return ""
    ends = " … ".join("?" if end is None else short(end, "+") for end in (line.low, line.high))
    return f"{short(line.difference, '+')} ({ends})"


def _wanted(line: Line, usd: float, least: float) -> Iterator[str]:
    """Number of further cases or passes needed for an answer."""
    numbers = line.numbers
    cases, passes = numbers.get("wanted_cases"), numbers.get("wanted_passes")
    what = "better" if numbers.get("wanted_better") else f"not better by more than {short(least)}"
    now, done = int(numbers.get("cases", 0)), int(numbers.get("passes", 1))
    if cases is None:
        yield "The difference is so small that no number of cases in reach would show one."
        return
    noise = numbers.get("noise")
    more = f"{cases - now:,.0f} more cases ({_cost(cases * done, usd)})"
    again = ""
    if passes and noise:
        again = f", or {passes:,.0f} passes over these ({_cost(passes * now, usd)})"
    yield (
        f"Were the true difference as measured, it would take about {more}{again} to find, four "
        f"times out of five, that it is {what}."
    )
    if noise == 0:
        yield "Answers do not vary, so repeats would show nothing."
    elif noise and not passes:
        yield "More passes over these cases alone would not do."


def _cost(pairs: float, usd: float) -> str:
    # a pair is one rollout on each of the two sides
    rollouts = 2 * pairs
    money = f", ${rollouts * usd:,.2f}" if usd else ""
    return f"{rollouts:,.0f} rollouts in all{money}"


def _planned(told: Planned, seed: str) -> Iterator[str]:
    first, last = told.forecasts[0], told.forecasts[-1]
    cases = f"these {told.cases} cases"
    if not told.noise:
        yield (
            f"Answers of {seed} do not vary: one pass over {cases} says all they can, and repeats "
            "are not paid for."
        )
        yield (
            f"At least {told.fewest} cases must get better, and none worse. At worst, where a "
            f"challenger's scores have nothing to do with those of {seed}, case by case, a gain of "
            f"{short(first.worst)} is found four times out of five."
        )
    else:
        yield (
            f"With {cases}, one pass of each side ({first.rollouts:,} rollouts) finds a gain of "
            f"{short(first.alike)} four times out of five, and {last.passes} passes "
            f"({last.rollouts:,} rollouts at most) one of {short(last.alike)}, if it is the same "
            "on every case."
        )
        yield (
            f"At worst, where a challenger's scores have nothing to do with those of {seed}, case "
            f"by case, it takes gains of {short(first.worst)} and {short(last.worst)}."
        )
        yield from _least(told)
    yield (
        "How much the gain differs from case to case is unknown before a challenger has run: the "
        f"truth lies between the two, unless it does well just where {seed} does badly. A "
        "comparison stops as soon as it can tell."
    )


def _least(told: Planned) -> Iterator[str]:
    """Cases or passes needed to find the smallest difference that matters."""
    least = f"The least gain worth knowing of, {short(told.least)}," if told.least else ""
    enough = next((row for row in told.forecasts if row.alike <= told.least), None)
    if least and enough is not None:
        yield f"{least} is found in {enough.passes} passes ({enough.rollouts:,} rollouts) at best."
    elif least and told.wanted is not None:
        passes = told.forecasts[-1].passes
        yield f"{least} takes {told.wanted:,} cases even so, in {passes} passes."


def limits(told: Comparison) -> Iterator[str]:
    """Limits of what the answers show."""
    yield (
        f"Each answer holds for cases of which the {told.cases} given are a fair sample. What few "
        "cases do, such a sample may not hold."
    )
    many = f" for any of the {len(told.lines)}" if len(told.lines) > 1 else ""
    yield (
        f"`better` is said wrongly in at most {told.alpha:.0%} of comparisons{many}, however often "
        "it was looked; the same holds for either end of an interval."
    )
