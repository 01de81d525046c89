"""Scores of rollouts, their sums over many, and paired losses of one side.

An `Evaluation` holds sums by case, by repeat and by metric, never the rollouts. Sums are taken in
the order in which pairs were asked for, so they do not depend on arrival order.

Losses of one side are immutable. Those of the incumbent meet one challenger after another, and
are summed only once.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import sqrt
from typing import Literal, NamedTuple, TypeVar

from kept.core.case import IMPLICIT_CASE
from kept.core.containers import make
from kept.core.objective import Constraint, Objective, countable
from kept.core.rollout import FREE, Failure, Pair, Purpose, TraceItem, Usage


class Answers(dict[Pair, float]):
    """The loss of every pair that has an answer."""

    @cached_property
    def by_case(self) -> Mapping[str, float]:
        """Each case's mean, in the order in which the cases were first answered."""
        rows: dict[str, list[float]] = {}
        for (case, _), loss in self.items():
            row = rows.get(case)
            if row is None:
                rows[case] = [loss]
            else:
                row.append(loss)
        return {case: sum(row) / len(row) for case, row in rows.items()}

    @cached_property
    def spread(self) -> float:
        """Standard deviation of one answer, over cases and repeats; 0 of fewer than two."""
        if len(self) < 2:
            return 0.0
        losses = [*self.values()]
        mean = sum(losses) / len(losses)
        return (sum([(loss - mean) ** 2 for loss in losses]) / len(losses)) ** 0.5

    @cached_property
    def alike(self) -> bool:
        """True if no case gave two different answers."""
        seen: dict[str, float] = {}
        return all(seen.setdefault(case, loss) == loss for (case, _), loss in self.items())


NO_ANSWERS = Answers()
"""Of a side that was not asked."""


K = TypeVar("K")

Severity = Literal["low", "medium", "high"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One stated defect with its evidence."""

    text: str
    severity: Severity = "medium"
    metric: str | None = None


class Score(NamedTuple):
    """Named measures of one rollout, in raw units; a tuple, as there is one for every rollout."""

    metrics: Mapping[str, float]
    findings: tuple[Finding, ...] = ()
    details: tuple[TraceItem, ...] = ()
    """Details for people, such as a judge's reasons; stored behind the trace of the rollout."""
    failure: Failure | None = None
    """Failure of a scorer that left details."""


def usable(score: Score) -> Score:
    """The score without measures that cannot be summed up; a finding names each of them.

    The journal could not hold them either: JSON has no word for them.
    """
    for value in score.metrics.values():
        if not countable(value):
            break
    else:
        return score
    strange = {name: v for name, v in score.metrics.items() if not countable(v)}
    metrics = {name: v for name, v in score.metrics.items() if name not in strange}
    notes = [Finding(f"`{name}` is {v}, left out", "low", name) for name, v in strange.items()]
    return score._replace(metrics=metrics, findings=(*score.findings, *notes))


_NOTHING: Mapping[str, float] = {}


class Outcome(NamedTuple):
    """Result of one pair: a score, or a failure with its culprit. A tuple, as `Score` is."""

    metrics: Mapping[str, float] = _NOTHING
    failure: Failure | None = None
    findings: tuple[Finding, ...] = ()
    usage: Usage = FREE
    seconds: float = 0.0
    tries: int = 1
    trace: str = ""
    """Address of the trace in the store; empty when there is none."""

    def copied(self) -> "Outcome":
        """The same, for one who may change its metrics: nobody else gets to see that."""
        metrics, *others = self
        return make(Outcome, ({**metrics}, *others))


class Tally(NamedTuple):
    """Running sums of one number."""

    n: int
    total: float
    squares: float
    failed: int = 0
    """Number of candidate failures among `n`, entered at the objective's worst value."""

    @property
    def mean(self) -> float:
        """The average; raises on an empty tally, which has none."""
        return self.total / self.n

    def plus(self, value: float, failed: int) -> "Tally":
        """With one more value."""
        squares = self.squares + value * value
        return Tally(self.n + 1, self.total + value, squares, self.failed + failed)

    @property
    def std(self) -> float:
        """Population standard deviation."""
        return sqrt(max(0.0, self.squares / self.n - self.mean**2))


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Tallies of one candidate for one purpose."""

    candidate: str
    purpose: Purpose
    cases: Mapping[str, Tally]
    """Losses by case."""
    repeats: Mapping[int, Tally]
    """Losses by repeat: one sweep over the cases each."""
    metrics: Mapping[str, Tally]
    """Raw measures over all rollouts."""
    asked: int
    loss: float | None = None
    """Mean over cases of each case's mean, all cases alike; None without any answer, and where a
    failure has no value to enter by."""
    missing: int = 0
    """Pairs that infrastructure failures left without an answer."""
    failed: int = 0
    """Pairs that failed by the candidate's own fault."""
    unscored: int = 0
    """Of the failed ones, those with no worst value to enter: the objective has no bounds."""
    first_failure: str = ""
    usd: float = 0.0
    """Cost of its rollouts."""

    @property
    def coverage(self) -> float:
        """Share of the pairs asked for that have an answer."""
        return 1.0 - self.missing / self.asked if self.asked else 0.0

    def metric(self, name: str) -> float | None:
        """Mean of one raw measure, None where it was never emitted."""
        tally = self.metrics.get(name)
        return tally.mean if tally and tally.n else None


class Checked(NamedTuple):
    """A constraint and what was measured."""

    constraint: Constraint
    measured: float | None
    """None where not every rollout emitted it: one that failed did not show that it holds."""
    half: float = 0.0
    """On each side of the mean, where the true one lies with a chance of 95 %."""

    @property
    def holds(self) -> bool:
        """True if it was measured and is satisfied."""
        return self.measured is not None and self.constraint.holds(self.measured)

    def __str__(self) -> str:
        if self.measured is None:
            return f"{self.constraint}: not emitted by every rollout"
        low, high = self.measured - self.half, self.measured + self.half
        interval = f" ({low:.3g} … {high:.3g})" if self.half else ""
        return f"{self.constraint}: it is {self.measured:g}{interval}"


def check_constraints(evaluation: Evaluation, objective: Objective) -> tuple[Checked, ...]:
    """Every constraint against what a candidate measured."""
    answered = evaluation.asked - evaluation.missing
    found: list[Checked] = []
    for constraint in objective.constraints:
        tally = evaluation.metrics.get(constraint.metric)
        whole = tally is not None and tally.n >= answered > 0
        if tally is None or not whole:
            found.append(Checked(constraint, None))
        else:
            found.append(Checked(constraint, tally.mean, 1.96 * tally.std / sqrt(tally.n)))
    return tuple(found)


def summarize(
    candidate: str,
    purpose: Purpose,
    outcomes: Iterable[tuple[Pair, Outcome]],
    objective: Objective,
) -> Evaluation:
    """Sum outcomes up, in the order given."""
    outcomes = list(outcomes)
    plain = _one_pass(outcomes, objective)
    if plain is None:
        return _summarize(candidate, purpose, outcomes, objective)
    cases, whole, mean = plain
    n, total, squares, _ = whole
    # not `-total`: that makes −0 of a loss of 0
    measured = 0.0 - total if objective.direction == "maximize" else total
    metrics = {objective.metric: Tally(n, measured, squares, 0)}
    repeats = {outcomes[0][0].repeat: whole}
    return Evaluation(candidate, purpose, cases, repeats, metrics, n, mean)


def _one_pass(
    outcomes: Sequence[tuple[Pair, Outcome]], objective: Objective
) -> tuple[dict[str, Tally], Tally, float] | None:
    """Tallies by case and of all, and the mean, where each case was met once with one measure.

    That is what is most common, in a third of the time; None where it is not all there is, and of
    rollouts that cost something, beside which it does not matter.
    """
    metric, sign = objective.metric, -1.0 if objective.direction == "maximize" else 1.0
    cases: dict[str, Tally] = {}
    losses: list[float] = []
    total = squares = 0.0
    only = outcomes[0][0].repeat if outcomes else 0
    for (case, repeat), (measured, failure, _, usage, _, _, _) in outcomes:
        if failure is not None or repeat != only or len(measured) != 1 or case in cases:
            return None
        if usage is not FREE:
            return None
        loss = sign * measured[metric]
        square = loss * loss
        losses.append(loss)
        total += loss
        squares += square
        cases[case] = make(Tally, (1, loss, square, 0))
    if not losses:
        return None
    # as it is summed up elsewhere, to the last bit: who is equal must come out equal
    return cases, Tally(len(losses), total, squares, 0), sum(losses) / len(losses)


def _summarize(
    candidate: str,
    purpose: Purpose,
    outcomes: Sequence[tuple[Pair, Outcome]],
    objective: Objective,
) -> Evaluation:
    cases: dict[str, Tally] = {}
    repeats: dict[int, list[float]] = {}
    metrics: dict[str, list[float]] = {}
    asked = missing = failed = unscored = 0
    first_failure, usd = "", 0.0
    loss_of = objective.loss
    for (case, repeat), (measured, failure, _, usage, _, _, _) in outcomes:
        asked += 1
        if usage is not FREE:
            usd += usage.usd
        if failure is None:
            loss = loss_of(measured)
            for name, value in measured.items():
                row = metrics.get(name)
                if row is None:
                    metrics[name] = [1, value, value * value, 0]
                else:
                    row[:3] = row[0] + 1, row[1] + value, row[2] + value * value
        else:
            if not first_failure:
                # in a run without cases there is none to name
                first_failure = failure.message
                if case != IMPLICIT_CASE.id:
                    first_failure = f"{case}: {first_failure}"
            if failure.blame == "infrastructure":
                missing += 1
                continue
            failed += 1
            loss = objective.worst_loss
            if loss is None:
                unscored += 1
                continue
        bad = int(failure is not None)
        square = loss * loss
        tally = cases.get(case)
        # most cases are met once
        one = make(Tally, (1, loss, square, bad)) if tally is None else tally.plus(loss, bad)
        cases[case] = one
        row = repeats.get(repeat)
        if row is None:
            repeats[repeat] = [1, loss, square, bad]
        else:
            row[:] = row[0] + 1, row[1] + loss, row[2] + square, row[3] + bad
    mean = None
    if cases and not unscored:
        mean = sum([total / n for n, total, _, _ in cases.values()]) / len(cases)
    return Evaluation(
        candidate,
        purpose,
        cases,
        _tallies(repeats),
        _tallies(metrics),
        asked,
        mean,
        missing,
        failed,
        unscored,
        first_failure,
        usd,
    )


BY_WHAT_IS_SCORED = frozenset(
    {"harness", "parse", "refused", "context", "crash", "exception", "empty"}
)
"""Failures of a scorer that what it is given may bring about; the others are outages."""


def blamed(
    mine: Iterable[tuple[Pair, Outcome]], theirs: Mapping[Pair, Outcome]
) -> list[tuple[Pair, Outcome]]:
    """A candidate's outcomes, where a scorer that fails on it alone is the candidate's failure.

    What breaks a scorer, or has a judge talk nonsense, would else be spared its worst cases.
    """
    found: list[tuple[Pair, Outcome]] = []
    for pair, outcome in mine:
        failure, other = outcome.failure, theirs.get(pair)
        if failure is not None and other is not None and other.failure is None:
            own = failure.scoring and failure.kind in BY_WHAT_IS_SCORED
            failure = replace(failure, blame="candidate") if own else failure
        found.append((pair, outcome._replace(failure=failure)))
    return found


def losses_of(outcomes: Iterable[tuple[Pair, Outcome]], objective: Objective) -> Answers:
    """The loss of every pair that has one; a candidate's own failure stands at the worst."""
    found = Answers()
    for pair, outcome in outcomes:
        failure = outcome.failure
        if failure is None:
            found[pair] = objective.loss(outcome.metrics)
        elif failure.blame == "candidate" and objective.worst_loss is not None:
            found[pair] = objective.worst_loss
    return found


def ties_of(outcomes: Iterable[tuple[Pair, Outcome]], objective: Objective) -> tuple[Answers, ...]:
    """Values of every tie-breaker on each pair that ran."""
    rows = [(pair, outcome.metrics) for pair, outcome in outcomes if outcome.failure is None]
    names = [breaker.metric for breaker in objective.tie_breakers]
    return tuple(
        Answers({pair: metrics[name] for pair, metrics in rows if name in metrics})
        for name in names
    )


def _tallies(sums: dict[K, list[float]]) -> dict[K, Tally]:
    return {key: Tally(int(n), total, sq, int(bad)) for key, (n, total, sq, bad) in sums.items()}
