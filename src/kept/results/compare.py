"""A comparison, read from its journal: an answer per challenger, or a forecast."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from kept.core.plan import COMPARE
from kept.core.proposal import ClosedStep
from kept.core.state import State
from kept.core.verdict import ANSWERS
from kept.gates._statistics import Spread, cases_needed, fewest
from kept.gates.compare import Compare, Forecast, forecasts


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Result of one challenger against the seed."""

    label: str
    step: int | None
    """None if it has not begun."""
    answer: str
    """`better`, `not better`, `worse`, `cannot tell` or `failed`; `open` before there is one."""
    reason: str
    seed_value: float | None
    value: float | None
    difference: float | None
    """The challenger's value less the seed's, in the metric's own units and direction."""
    low: float | None
    high: float | None
    """Bounds of the confidence interval of the true difference; None without bounds."""
    numbers: Mapping[str, float]
    crashed: bool = False
    """True if its step crashed, as when all of its rollouts failed."""

    @property
    def rollouts(self) -> int:
        """Number of its own rollouts; those of the seed are shared by all challengers."""
        return int(self.numbers.get("rollouts", 0))

    @property
    def here(self) -> str:
        """Answer for exactly these cases, without generalizing to new ones."""
        return {1.0: "better", -1.0: "worse"}.get(self.numbers.get("here", 0.0), "cannot tell")


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """Forecast of what a comparison on these cases can show."""

    cases: int
    seed_value: float
    noise: float
    """Standard deviation of answers to the same case."""
    between: float
    """Standard deviation between cases."""
    widest: float
    """Upper bound of `between`, at 95 % confidence."""
    least: float
    """Smallest difference that matters; 0 if undefined."""
    wanted: int | None
    """Number of cases needed to find it in all passes, if it is the same on every case."""
    fewest: int
    """Smallest number of improved cases, with none worse, that can be significant."""
    forecasts: tuple[Forecast, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A comparison: its question and its results."""

    seed: str
    """Label of the seed."""
    cases: int
    alpha: float
    lines: tuple[Line, ...]
    planned: Planned | None
    """Set only if the seed alone was measured."""
    plans: bool
    reason: str = ""
    """Reason of the verdict on the seed alone; says why `planned` is None, if it is."""

    @property
    def better(self) -> bool:
        """True if any challenger is better than the seed."""
        return any(line.answer == "better" for line in self.lines)

    def document(self) -> dict[str, Any]:
        """All figures as plain data, for `--json`."""
        lines = [
            {**asdict(line), "rollouts": line.rollouts, "here": line.here} for line in self.lines
        ]
        planned = None
        if self.planned is not None:
            rows = [row._asdict() for row in self.planned.forecasts]
            planned = {**asdict(self.planned), "forecasts": rows}
        return {
            "seed": self.seed,
            "cases": self.cases,
            "alpha": self.alpha,
            "challengers": lines,
            "plan": planned,
        }


COMPARES = {COMPARE: True}
"""Recipes whose runs have the fact `compared`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """The fact `compared` of a run: its labels and settings."""

    labels: tuple[str, ...]
    """Labels of the seed and of its challengers, in this order."""
    most: int
    """Maximum number of passes over the cases."""
    least: float | None = None
    """Smallest difference that matters; None for the default."""
    plans: bool = False
    """True if the seed is measured alone, for a forecast."""


def compared_in(state: State, folder: Path | None = None) -> Compared | None:
    """Read the fact `compared`; None for a run of another kind."""
    if state.started is None or not COMPARES.get(state.started.recipe):
        return None
    from kept.store.jsonl import decoded  # loads msgspec, which the help of commands need not

    return decoded(state.started.facts.get("compared"), Compared, "facts.compared", folder)


def comparison_of(
    state: State, reasons: Mapping[int, str] | None = None, folder: Path | None = None
) -> Comparison | None:
    """Return the comparison of a run; None for a run of another kind.

    `reasons` of steps replace those in the state, which do not say what failed.
    """
    told = compared_in(state, folder)
    if told is None:
        return None
    seed, *others = told.labels
    gate = Compare(max(1, len(others)), told.least, told.most)
    # a challenger may have several steps until it has an answer; the last one counts
    closed = {step.turn.number: step for step in state.history}
    known = {step.step: step.verdict.words for step in state.history} | dict(reasons or {})
    minimize = state.settings.direction == "minimize"
    lines = (
        ()
        if told.plans
        else [_line(label, closed.get(n), minimize) for n, label in enumerate(others)]
    )
    lines = [
        line if line.step is None else replace(line, reason=known[line.step]) for line in lines
    ]
    return Comparison(
        seed=seed,
        cases=(state.settings.cases or {}).get("holdout", 0),
        alpha=gate.alpha,
        lines=tuple(lines),
        planned=_planned(closed.get(0), gate) if told.plans else None,
        plans=told.plans,
        reason=known[closed[0].step] if told.plans and 0 in closed else "",
    )


def _line(label: str, step: ClosedStep | None, minimize: bool) -> Line:
    numbers: Mapping[str, float] = step.verdict.numbers if step else {}
    gain, low, high = (numbers.get(name) for name in ("gain", "low", "high"))
    # a gain is positive if better; a difference is in the metric's own direction
    ends = (_turned(high), _turned(low)) if minimize else (low, high)
    answer = "open"
    if step is not None:
        answer = step.verdict.code if step.verdict.code in ANSWERS else "failed"
    return Line(
        label=label,
        step=step.step if step else None,
        answer=answer,
        reason="",
        seed_value=numbers.get("seed_value"),
        value=numbers.get("value"),
        difference=_turned(gain) if minimize else gain,
        low=ends[0],
        high=ends[1],
        numbers=numbers,
        crashed=step is not None and step.verdict.outcome == "crash",
    )


def _turned(number: float | None) -> float | None:
    return None if number is None else 0.0 - number


def _planned(step: ClosedStep | None, gate: Compare) -> Planned | None:
    if step is None or step.verdict.code != "measured":
        return None
    numbers = step.verdict.numbers
    cases, noise, widest = int(numbers["cases"]), numbers["noise"], numbers["widest"]
    # the verdict has variances, `Planned` has standard deviations
    return Planned(
        cases=cases,
        seed_value=numbers["seed_value"],
        noise=noise**0.5,
        between=numbers["between"] ** 0.5,
        widest=widest**0.5,
        least=numbers["least"],
        # a difference of two answers has twice the noise of one
        wanted=cases_needed(
            Spread(2 * noise, 0.0), numbers["least"], gate.most, gate.final(cases, gate.most)
        ),
        fewest=fewest(gate.final(cases, 1)),
        forecasts=tuple(forecasts(gate, cases, noise, widest)),
    )
