"""A comparison told from its journal: an answer for each challenger, or what one could show."""

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
from kept.store.jsonl import decoded


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """How one challenger stands to the seed."""

    label: str
    step: int | None
    """None while it was not begun."""
    answer: str
    """`better`, `not better`, `worse` or `cannot tell`; or `failed`, or `open` without any yet."""
    reason: str
    seed_value: float | None
    value: float | None
    difference: float | None
    """The challenger's value less the seed's, in the metric's own units and direction."""
    low: float | None
    high: float | None
    """Where the true difference lies for cases like these; None where nothing bounds it."""
    numbers: Mapping[str, float]
    crashed: bool = False
    """Whether none of its rollouts came to an end."""

    @property
    def rollouts(self) -> int:
        """Its own; those of the seed are shared by all."""
        return int(self.numbers.get("rollouts", 0))

    @property
    def here(self) -> str:
        """What these very cases show of it, whatever new ones would."""
        return {1.0: "better", -1.0: "worse"}.get(self.numbers.get("here", 0.0), "cannot tell")


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """What a comparison on these cases could show."""

    cases: int
    seed_value: float
    noise: float
    """Standard deviation of answers to the same case."""
    between: float
    """The same of cases."""
    widest: float
    """What that is at most, with a chance of 95 %."""
    least: float
    """The least gain worth knowing of; 0 where nothing says what that is."""
    wanted: int | None
    """Cases that it takes to find that, where it is the same on every case, in all passes."""
    fewest: int
    """Cases that must get better, and none worse, for the least that can be said."""
    forecasts: tuple[Forecast, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What was asked and what came of it."""

    seed: str
    """As it was called."""
    cases: int
    alpha: float
    lines: tuple[Line, ...]
    planned: Planned | None
    """Only where the seed alone was measured."""
    plans: bool
    reason: str = ""
    """Why nothing could be planned."""

    @property
    def better(self) -> bool:
        """Whether any challenger is."""
        return any(line.answer == "better" for line in self.lines)

    def document(self) -> dict[str, Any]:
        """All of it, for programs."""
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
    """What a comparison compares, as its facts have it under `compared`."""

    labels: tuple[str, ...]
    """As the seed and its challengers are called."""
    most: int
    """Passes over the cases, at most."""
    least: float | None = None
    """The least gain worth knowing of."""
    plans: bool = False
    """Whether the seed is measured alone, to say what a comparison could show."""


def compared_in(state: State, folder: Path | None = None) -> Compared | None:
    """What a run compares; None for a run that compares nothing."""
    if state.started is None or not COMPARES.get(state.started.recipe):
        return None
    return decoded(state.started.facts.get("compared"), Compared, "facts.compared", folder)


def comparison_of(
    state: State, reasons: Mapping[int, str] | None = None, folder: Path | None = None
) -> Comparison | None:
    """The comparison that a run is; None for any other run.

    Reasons of steps, where given, say what failed, which those in the state do not.
    """
    told = compared_in(state, folder)
    if told is None:
        return None
    seed, *others = told.labels
    gate = Compare(max(1, len(others)), told.least, told.most)
    # each is asked until it has an answer, and the last one counts
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
    return Planned(
        cases=cases,
        seed_value=numbers["seed_value"],
        noise=noise**0.5,
        between=numbers["between"] ** 0.5,
        widest=widest**0.5,
        least=numbers["least"],
        wanted=cases_needed(
            Spread(2 * noise, 0.0), numbers["least"], gate.most, gate.final(cases, gate.most)
        ),
        fewest=fewest(gate.final(cases, 1)),
        forecasts=tuple(forecasts(gate, cases, noise, widest)),
    )
