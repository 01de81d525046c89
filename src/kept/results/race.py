"""Figures of a race: its counts, and the step that came nearest to a proof."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import NamedTuple

from kept.core.near_misses import ENTERED
from kept.core.proposal import MERGE
from kept.gates._common import TIE
from kept.gates._statistics import Spread, cases_needed, student
from kept.results.summary import StepLine, Summary


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Facts that the conclusion of a run rests on; a `Summary` has them too."""

    recipe: str
    gate: str
    status: str
    cases: Mapping[str, int]
    seed_value: float | None
    improved: bool
    steps: tuple[StepLine, ...]
    claim_gain: float | None
    claim_low: float | None
    claim_high: float | None
    comparison: None = None


class Doubt(NamedTuple):
    """The step that came nearest to a proof without having one."""

    step: int
    gain: float
    low: float
    high: float
    cases: int
    """Number of cases that it was measured on."""
    wanted: int | None
    """Deciding cases that would prove such a gain in four of five runs; None if no number would."""
    rollouts: int
    """Number of rollouts that a proof on `wanted` cases would take."""


def doubt_of(told: Summary | Outcome) -> Doubt | None:
    """Find the step since the last proof that came nearest to one; None if none came near."""
    proven = max((row.step for row in told.steps if row.best), default=-1)
    tried = [row for row in told.steps if row.step > proven and "alpha_promote" in row.numbers]
    near = [row for row in tried if row.numbers["gain"] > 0 and "low" in row.numbers]
    if not near:
        return None
    row = min(near, key=lambda row: row.numbers["p"])
    cases = int(row.numbers.get("cases", told.cases.get("holdout", 0)))
    return _doubt(row, cases) if cases > 1 else None


def _doubt(row: StepLine, cases: int) -> Doubt:
    gain, low, high = (row.numbers[name] for name in ("gain", "low", "high"))
    # from p, not from the interval: the interval is for unseen cases, a proof is not
    error = gain / student(1 - row.numbers["p"], cases - 1)
    # all of it as spread between cases: the verdict does not say how much more passes would remove
    spread = Spread(noise=0.0, effect=(error * sqrt(cases)) ** 2)
    # the next proof of a run has half as much to risk
    wanted = cases_needed(spread, gain, 1, row.numbers["alpha_promote"] / 2)
    if wanted is not None and wanted > cases:
        # rounded here, so that all sentences show the same number of further cases
        wanted = cases + rounded_up(wanted - cases)
    passes = row.numbers.get("passes", 1.0)
    return Doubt(row.step, gain, low, high, cases, wanted, int(2 * passes * (wanted or 0)))


def no_step_left(told: Summary) -> bool:
    """True if a resume could do nothing: every iteration is used and judged."""
    most = told.budget.get("max_iterations")
    return most is not None and len(told.steps) >= most and not told.open


def rounded_up(number: int) -> int:
    """Round an estimate up to tens, from 20 on."""
    return number if number < 20 else -(-number // 10) * 10


@dataclass(frozen=True, slots=True)
class Raced:
    """Counts of a race, by stage."""

    screened: int
    """Number of proposals screened on train cases, merges excluded."""
    near: int
    """Number of promising ones among them, which wait to be raced together with others."""
    raced: int
    won: int
    """Number of races that ended in a keep."""
    kept: int
    """Number of all keeps, with those that were proven without a race."""
    risked: float
    """Sum of the error probabilities that the races were allowed."""
    proofs: tuple[str, ...]
    """Reason of each promotion's verdict."""
    simpler: int = 0
    """Number of simplifications tested for being no worse than the margin allows."""
    simpler_kept: int = 0
    entered: int = 0
    """Number of alternatives that were compared together."""
    finalists: int = 0
    """Number of them that passed their first look."""
    ties: int = 0
    """Number of candidates tested because of their tie-breakers."""
    ties_kept: int = 0


def raced(told: Summary) -> Raced | None:
    """Return the counts of a race; None for a run with another gate."""
    if told.gate != "race":
        return None
    screened = [row for row in told.steps if "screen_gain" in row.numbers and row.proposer != MERGE]
    races = [row for row in told.steps if "alpha" in row.numbers]
    no_worse = [row for row in told.steps if "alpha_simplify" in row.numbers]
    ties = [row for row in no_worse if TIE in row.numbers]
    simpler = [row for row in no_worse if TIE not in row.numbers]
    return Raced(
        len(screened),
        sum(row.code == "near miss" for row in screened),
        len(races),
        sum(row.kept for row in races),
        sum(row.kept for row in told.steps),
        sum(row.numbers["alpha"] for row in races),
        tuple(row.reason for row in told.steps if "alpha_promote" in row.numbers),
        len(simpler),
        sum(row.kept for row in simpler),
        len(entered := [row for row in told.steps if ENTERED in row.numbers]),
        sum(row.code == "near miss" for row in entered),
        len(ties),
        sum(row.kept for row in ties),
    )


def leads(steps: Sequence[StepLine], seed: float | None) -> dict[int, float | None]:
    """Leading value when each step closed: that of the last keep, at first the seed's."""
    found: dict[int, float | None] = {}
    for row in steps:
        seed = row.value if row.kept else seed
        found[row.step] = seed
    return found
