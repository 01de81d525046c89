"""Figures of a race: its counts, and what came nearest to a proof."""

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
    """Facts of a run that its conclusion rests on; a `Summary` has them too."""

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
    """What came nearest to a proof, and had none."""

    step: int
    gain: float
    low: float
    high: float
    cases: int
    """That were looked at."""
    wanted: int | None
    """Deciding cases that would prove such a gain in four runs of five; None where none would."""
    rollouts: int
    """What a proof on so many would take."""


def doubt_of(told: Summary | Outcome) -> Doubt | None:
    """The nearest miss of a race that ended without a proof; None where nothing came near one."""
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
    # not by the interval, which counts cases that nobody saw: a proof does not
    error = gain / student(1 - row.numbers["p"], cases - 1)
    # by cases alone: how much of it further passes would take away, the verdict does not say
    spread = Spread(noise=0.0, effect=(error * sqrt(cases)) ** 2)
    # the next proof of a run has half as much to risk
    wanted = cases_needed(spread, gain, 1, row.numbers["alpha_promote"] / 2)
    if wanted is not None and wanted > cases:
        # one figure in all sentences: the cases that are there, and about so many more
        wanted = cases + rounded_up(wanted - cases)
    passes = row.numbers.get("passes", 1.0)
    return Doubt(row.step, gain, low, high, cases, wanted, int(2 * passes * (wanted or 0)))


def no_step_left(told: Summary) -> bool:
    """Whether a resume could do nothing, as every iteration is used and judged."""
    most = told.budget.get("max_iterations")
    return most is not None and len(told.steps) >= most and not told.open


def rounded_up(number: int) -> int:
    """A number that is an estimate, to tens from 20 on."""
    return number if number < 20 else -(-number // 10) * 10


@dataclass(frozen=True, slots=True)
class Raced:
    """The counts of a race's four questions."""

    screened: int
    """Proposals that met train cases."""
    near: int
    """Of them, those worth a race together with others."""
    raced: int
    won: int
    """Races that ended in a keep."""
    kept: int
    """Keeps, those among them that were proven at once, without a race before."""
    risked: float
    """Chance of error that the races were allowed, in sum."""
    proofs: tuple[str, ...]
    """What each promotion that was asked for said."""
    simpler: int = 0
    """Simplifications that were tested for being no worse than by the margin."""
    simpler_kept: int = 0
    entered: int = 0
    """Alternatives that were compared all together."""
    finalists: int = 0
    """Of them, those that went on after their first look."""
    ties: int = 0
    """Raced for their tie-breakers."""
    ties_kept: int = 0


def raced(told: Summary) -> Raced | None:
    """The counts of a run whose gate is the race; None of any other."""
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
    """What led when each step closed: the value of the last keep."""
    found: dict[int, float | None] = {}
    for row in steps:
        seed = row.value if row.kept else seed
        found[row.step] = seed
    return found
