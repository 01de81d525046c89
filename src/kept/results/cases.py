"""Results of an evaluation: every case with its exchanges and metrics, and the sums.

They are read from the journal alone, so reports can be made of old runs too.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, NamedTuple, cast

from kept.core.event import RunSettings
from kept.core.llm import CASE, EXPECTED, PASSED, Exchange, exchanges_of
from kept.core.objective import Direction
from kept.core.plan import EVALUATE
from kept.core.rollout import FREE, Failure, Job, TraceItem, Usage
from kept.core.score import Outcome
from kept.core.state import State
from kept.store.jsonl import decoded
from kept.store.reader import Run

Status = Literal["passed", "scored", "failed", "errored"]
"""`scored` is a case of a task without a pass criterion. `errored` is a case that could not be run
or measured; it says nothing about the agent."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One metric of one exchange."""

    metric: str
    kind: str
    exchange: int
    score: float | None
    passed: bool | None
    threshold: float | None = None
    error: str = ""
    blame: str = ""
    reasoning: str = ""
    tries: int = 1
    seconds: float = 0.0
    model: str = ""
    details: Mapping[str, object] = field(default_factory=dict[str, object])


@dataclass(frozen=True, slots=True)
class Expected:
    """Tool calls that one exchange was expected to make."""

    exchange: int
    matched: bool
    expected: Sequence[object]
    arguments: Sequence[Mapping[str, object]]


@dataclass(frozen=True, slots=True)
class Tested:
    """One repeat of one case."""

    case: str
    repeat: int
    status: Status
    metrics: Mapping[str, float]
    """Metrics of the case; of an errored case, those that could be measured."""
    exchanges: tuple[Exchange, ...] = ()
    truths: Mapping[int, str] = field(default_factory=dict[int, str])
    """Expected answers, by exchange."""
    measured: tuple[Measured, ...] = ()
    expected: tuple[Expected, ...] = ()
    failure: Failure | None = None
    findings: tuple[str, ...] = ()
    seconds: float = 0.0
    usage: Usage = FREE
    tries: int = 1
    described: bool = False
    """True if input and output were recorded for reports."""

    @property
    def why(self) -> str:
        """Reason why it did not pass, in one line; else empty."""
        if self.failure is not None:
            return self.failure.message
        return "; ".join(self.findings) if self.status in ("failed", "errored") else ""

    @property
    def input(self) -> str:
        """Input of the first exchange."""
        return self.exchanges[0].input if self.exchanges else ""

    @property
    def got(self) -> str:
        """The last answer; of a failure, its message."""
        if self.failure is not None:
            return f"({self.failure.kind}: {self.failure.message})"
        return self.exchanges[-1].response if self.exchanges else ""

    @property
    def truth(self) -> str:
        """Expected answer of the last exchange; empty if none is recorded."""
        return self.truths.get(len(self.exchanges) - 1, "")


class Mean(NamedTuple):
    """A metric over all cases."""

    score: float | None
    """Mean of the cases' means; None if it was never measured."""
    cases: int
    errored: int
    """Number of attempts, of those in `asked`, in which it could not be measured."""
    asked: int

    @property
    def share(self) -> float:
        """Share of attempts in which it could not be measured."""
        return self.errored / self.asked if self.asked else 0.0


@dataclass(frozen=True, slots=True)
class Sweep:
    """All cases of an evaluation, with their sums."""

    run: str
    name: str
    spec: str
    asked: int
    """Number of pairs of a case and a repeat."""
    graded: bool
    """True if cases can pass or fail."""
    metric_is_pass: bool
    """True if the metric itself says that a case passes, as an agent's does."""
    metric: str
    cases: tuple[Tested, ...]
    means: Mapping[str, Mean]
    started: float
    elapsed: float
    version: str
    agent: Mapping[str, object]
    """Facts about the evaluated agent or student for reports, such as its model."""
    direction: Direction = "maximize"
    mean: float | None = None
    """Mean of the primary metric; a failure counts as the worst value. None without any score."""
    pass_at: float | None = None
    """Value of the primary metric at which a case passes; None if not defined."""
    min_score: float | None = None
    """The mean that the command requires; None without a requirement."""
    described: bool = False
    """True if any case is recorded with its input, expected and actual output."""
    of: str = ""
    """Name of the recipe that measures."""

    def count(self, status: Status) -> int:
        """Number of cases that ended with a status."""
        return sum(one.status == status for one in self.cases)

    @property
    def meets_min_score(self) -> bool | None:
        """True if the mean is as good as the command requires; None without a requirement."""
        if self.min_score is None:
            return None
        return self.mean is not None and _reaches(self.mean, self.min_score, self.direction)

    def worst_first(self) -> list[Tested]:
        """Cases by score, failures first, then the worst scores."""
        sign = 1.0 if self.direction == "maximize" else -1.0

        def rank(one: Tested) -> tuple[bool, float]:
            return one.failure is None, sign * one.metrics.get(self.metric, 0.0)

        return sorted(self.cases, key=rank)

    @property
    def unscored(self) -> int:
        """Number of errored cases that ran but could not be scored."""
        failures = (one.failure for one in self.cases if one.status == "errored")
        return sum(failure is not None and failure.scoring for failure in failures)

    @property
    def pass_rate(self) -> float | None:
        """Share of passed cases among those that passed or failed; None without any."""
        told = self.count("passed") + self.count("failed")
        return self.count("passed") / told if told else None

    @property
    def usage(self) -> Usage:
        """Total usage of all cases."""
        total = FREE
        for one in self.cases:
            total += one.usage
        return total


MEASURES = {EVALUATE: True}
"""Recipes whose runs have the fact `evaluated`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated:
    """The fact `evaluated` of a run: what it measures, and what passes."""

    of: str
    """Name of the recipe that measures."""
    name: str
    """Name of the thing that is measured."""
    rollouts: int
    cases: tuple[str, ...]
    """Ids of the cases, in order."""
    pass_at: float | None = None
    """Value of the metric at which a case passes."""
    metric_is_pass: bool = False
    """True if the metric itself says that a case passes."""
    min_score: float | None = None
    """The mean of the primary metric that the command requires, in its direction."""
    agent: Mapping[str, object] = field(default_factory=dict[str, object])
    """Facts about an agent or a student, such as its model and tools."""


def evaluated_in(state: State, folder: Path | None = None) -> Evaluated | None:
    """Read the fact `evaluated`; None for a run of another kind."""
    if state.started is None or not MEASURES.get(state.started.recipe):
        return None
    return decoded(state.started.facts.get("evaluated"), Evaluated, "facts.evaluated", folder)


def sweep_of(run: Run, *, traces: bool = True) -> Sweep | None:
    """Return the results of an evaluation; None for a run of another kind.

    Without traces it is quick: statuses and scores, but no exchanges or details.
    """
    started = run.state.started
    told = evaluated_in(run.state, run.folder)
    if told is None or started is None:
        return None
    grading = grading_of(run.settings, told)
    cases = tuple(_cases(run, told.cases, grading, traces))
    means = _means(cases, metric_is_pass=grading.metric_is_pass)
    mean = _whole_mean(run, grading.metric, means)
    if mean is not None and grading.metric in means:
        # this mean counts failures as the worst value, as the run's verdict does
        judged = {one.case for one in cases if one.status != "errored"}
        means[grading.metric] = means[grading.metric]._replace(score=mean, cases=len(judged))
    return Sweep(
        run=run.id,
        name=told.name or run.settings.spec.path,
        spec=run.settings.spec.path,
        asked=told.rollouts,
        graded=grading.graded,
        metric_is_pass=grading.metric_is_pass,
        metric=grading.metric,
        cases=cases,
        means=means,
        direction=grading.direction,
        mean=mean,
        pass_at=grading.pass_at,
        min_score=told.min_score,
        described=any(one.described for one in cases),
        started=started.t,
        elapsed=run.state.elapsed,
        version=started.version,
        agent=told.agent,
        of=told.of,
    )


class Grading(NamedTuple):
    """Criterion by which a case passes."""

    metric: str
    direction: Direction
    pass_at: float | None
    metric_is_pass: bool

    @property
    def graded(self) -> bool:
        """True if cases can pass or fail, by the metric itself or by `pass_at`."""
        return self.metric_is_pass or self.pass_at is not None

    def status(self, outcome: Outcome) -> Status:
        """Status of a pair, from its outcome."""
        if outcome.failure is not None:
            return "errored" if outcome.failure.blame == "infrastructure" else "failed"
        if not self.graded:
            return "scored"
        pass_at = 1.0 if self.pass_at is None else self.pass_at
        worst = -inf if self.direction == "maximize" else inf
        value = outcome.metrics.get(self.metric, worst)
        return "passed" if _reaches(value, pass_at, self.direction) else "failed"


def grading_of(settings: RunSettings, told: Evaluated) -> Grading:
    """Pass criterion of a run."""
    return Grading(settings.metric, settings.direction, told.pass_at, told.metric_is_pass)


def _reaches(value: float, wanted: float, direction: Direction) -> bool:
    return value >= wanted if direction == "maximize" else value <= wanted


def _whole_mean(run: Run, metric: str, means: "Mapping[str, Mean]") -> float | None:
    """Mean over all cases, from the run's verdict; before its end, from the cases so far."""
    for step in run.state.history:
        if "value" in step.verdict.numbers:
            return step.verdict.numbers["value"]
    mean = means.get(metric)
    return mean.score if mean else None


def _cases(run: Run, asked: Sequence[str], grading: Grading, traces: bool) -> Iterator[Tested]:
    """Yield every pair once, in the order of the cases; the last of several attempts counts."""
    # by pair, so that a later attempt replaces an earlier one
    rows = {(job.repeat, job.case_id): (job, outcome) for _, job, outcome in run.rollouts()}
    order = {case: at for at, case in enumerate(asked)}
    for key in sorted(rows, key=lambda key: (key[0], order.get(key[1], len(order)), key[1])):
        job, outcome = rows[key]
        trace = run.trace(outcome.trace) if outcome.trace and traces else ()
        yield tested(job, outcome, trace, grading)


def tested(job: Job, outcome: Outcome, trace: Sequence[TraceItem], grading: Grading) -> Tested:
    """Build one pair's result from its records."""
    measured = tuple(_measured(item) for item in trace if item.role == "metric")
    tools = (cast("Mapping[str, Any]", item.data) for item in trace if item.role == "tools")
    expected = tuple(
        Expected(data["exchange"], data["matched"], data["expected"], data["arguments"])
        for data in tools
    )
    truths = {
        cast("int", item.data["exchange"]): item.text for item in trace if item.role == EXPECTED
    }
    exchanges = exchanges_of(trace)
    described = next((item for item in trace if item.role == CASE), None)
    if described is not None:
        exchanges = (Exchange(described.text, str(described.data["got"]), answered=True),)
        truths = {0: str(described.data["expected"])} if "expected" in described.data else {}
    metrics = dict(outcome.metrics) or _by_metric(measured)
    return Tested(
        case=job.case_id,
        repeat=job.repeat,
        status=grading.status(outcome),
        metrics=metrics,
        exchanges=exchanges,
        described=described is not None,
        truths=truths,
        measured=measured,
        expected=expected,
        failure=outcome.failure,
        findings=tuple(finding.text for finding in outcome.findings),
        seconds=outcome.seconds,
        usage=outcome.usage,
        tries=outcome.tries,
    )


def _by_metric(measured: Sequence[Measured]) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    for one in measured:
        if one.score is not None:
            found.setdefault(one.metric, []).append(one.score)
    return {name: fmean(scores) for name, scores in found.items()}


def _means(cases: Sequence[Tested], *, metric_is_pass: bool) -> dict[str, Mean]:
    """Mean of each metric over all cases; an agent's failure counts as 0 in missing metrics."""
    # scores by metric and case, one for each repeat
    scores: dict[str, dict[str, list[float]]] = {}
    asked: dict[str, int] = {}
    errored: dict[str, int] = {}
    for one in cases:
        for name, score in one.metrics.items():
            scores.setdefault(name, {}).setdefault(one.case, []).append(score)
        for each in one.measured:
            asked[each.metric] = asked.get(each.metric, 0) + 1
            errored[each.metric] = errored.get(each.metric, 0) + (each.blame == "infrastructure")
    hidden = (PASSED,) if metric_is_pass else ()
    names = dict.fromkeys(name for name in (*scores, *asked) if name not in hidden)
    for one in cases if metric_is_pass else ():
        if one.failure is not None and one.status == "failed":
            # no answer is as bad as a wrong one, in every metric
            for name in names.keys() - one.metrics.keys():
                scores.setdefault(name, {}).setdefault(one.case, []).append(0.0)
    found: dict[str, Mean] = {}
    for name in names:
        means = [fmean(each) for each in scores.get(name, {}).values()]
        mean = fmean(means) if means else None
        found[name] = Mean(mean, len(means), errored.get(name, 0), asked.get(name, 0))
    return found


def _measured(item: TraceItem) -> Measured:
    data = cast("Mapping[str, Any]", item.data)
    return Measured(
        metric=data["metric"],
        kind=data["kind"],
        exchange=data["exchange"],
        score=data.get("score"),
        passed=data.get("passed"),
        threshold=data.get("threshold"),
        error=data.get("error") or "",
        blame=data.get("blame") or "",
        reasoning=item.text,
        tries=data.get("tries") or 1,
        seconds=data.get("seconds") or 0.0,
        model=data.get("model") or "",
        details=data.get("details") or {},
    )


def called(one: Tested) -> str:
    """Display name of a measurement: its case, and the repeat if it is not the first."""
    return one.case if not one.repeat else f"{one.case} #{one.repeat + 1}"
