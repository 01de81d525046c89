"""Scorer of agent tests: all metrics of all exchanges, and pass or fail of a case.

Metrics of the turn take precedence over those of the case, and those over the agent's. If a
metric could not be measured, the case has no score, and the details hold all others. An agent
without an answer is measured no further.

For skill training, `hard` is 1 if all metrics pass, and `soft` is their mean.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple, cast

from kept.core.artifact import Candidate
from kept.core.case import Case
from kept.core.llm import PASSED, Exchange, answered, exchanges_of, expected, failure_of
from kept.core.ports import Scope
from kept.core.rollout import Failure, Job, Rollout, TraceItem
from kept.core.score import Finding, Score
from kept.core.text import count
from kept.evaluators.metrics.config import Metric, keyed, read_metrics, subject_of, turns_of
from kept.evaluators.metrics.evaluate import Asked, Means, Measuring, Result
from kept.evaluators.metrics.tool_calls import Expecting, Use, read_expected
from kept.evaluators.scorers.judge.scorer import side_by_side

TOOLS = "tools"
"""Role of trace items about expected tools."""


class Used(NamedTuple):
    """Check of the tools that one exchange was expected to use."""

    at: int
    """Index of the exchange."""
    expected: Sequence[object]
    """Expectations as in the case."""
    uses: tuple[Use, ...]

    @property
    def matched(self) -> bool:
        """True if all tools were used as expected."""
        return all(use.at >= 0 for use in self.uses)

    @property
    def told(self) -> TraceItem:
        """Trace item of the check."""
        data: dict[str, object] = {
            "exchange": self.at,
            "matched": self.matched,
            "expected": list(self.expected),
            "arguments": [use.told for use in self.uses],
        }
        return TraceItem(TOOLS, "", data)


class DialogueScorer:
    """Scorer of conversations."""

    def __init__(
        self, metrics: tuple[Metric, ...], means: Means, needed: Collection[str] | None = None
    ) -> None:
        """Take the agent's metrics; if one of `needed` (None: any) fails, there is no score."""
        self._metrics = keyed(metrics)
        self._needed = needed
        self._measuring = Measuring(means)
        self._expecting = Expecting()

    async def score(
        self, job: Job, rollout: Rollout, candidate: Candidate, case: Case, scope: Scope
    ) -> Score | Failure:
        """Compare tools with the expected ones, then measure all metrics concurrently."""
        exchanges, turns = exchanges_of(rollout.trace), turns_of(case)
        used = await self._used(turns, exchanges)
        if isinstance(used, Failure):
            return used
        truths = ((index, turn.get("ground_truth")) for index, turn in enumerate(turns))
        given = (expected(str(truth), index) for index, truth in truths if truth is not None)
        told = (*given, *(one.told for one in used))
        own = failure_of(rollout.trace)
        if own is not None:
            return Score({}, details=told, failure=own)
        if len(exchanges) != len(turns):
            had, wanted = count(len(exchanges), "exchange"), len(turns)
            message = f"the conversation has {had}, and its case {wanted}"
            return Failure("harness", "infrastructure", message)
        # a failed metric stops the stages after it, see `fail_on_error`
        stages = _stages(self._asked(case, turns, exchanges))
        results = await self._measured(stages, job, scope)
        failed = [one for one in results if one.failure is not None]
        lacks = (one.failure for one in failed if self._needs(one))
        failure = next(lacks, None)
        details = (*told, *(one.told for one in results))
        several = len(turns) > 1
        of_tools = (
            Finding(f"{_where(one.at, several)}tools: {use.reason}", "high")
            for one in used
            for use in one.uses
            if use.reason
        )
        findings = (*of_tools, *_of_metrics(results, several))
        metrics = {**rollout.metrics, **_means(results)}
        if not failed:
            matched = all(one.matched for one in used)
            metrics[PASSED] = float(matched and all(one.passed is not False for one in results))
        return Score(metrics, findings, details, failure)

    def _needs(self, result: Result) -> bool:
        return self._needed is None or result.asked.key in self._needed

    async def close(self) -> None:
        """End the processes; models have nothing to close."""
        self._measuring.close()
        self._expecting.close()

    async def _used(
        self, turns: Sequence[Mapping[str, Any]], exchanges: Sequence[Exchange]
    ) -> list[Used] | Failure:
        found: list[Used] = []
        for index, (turn, exchange) in enumerate(zip(turns, exchanges, strict=False)):
            rows = turn.get("expected_tools")
            if rows is None:
                continue
            uses = await self._expecting.check(read_expected(rows), exchange.uses)
            if isinstance(uses, Failure):
                return uses
            found.append(Used(index, rows, uses))
        return found

    def _asked(
        self, case: Case, turns: Sequence[Mapping[str, Any]], exchanges: Sequence[Exchange]
    ) -> Iterator[Asked]:
        data = cast("Mapping[str, Any]", case.data)
        for index, (turn, exchange) in enumerate(zip(turns, exchanges, strict=True)):
            subject = subject_of(case, index, turn, exchange)
            own = (turn.get("evaluations"), data.get("evaluations"))
            rows = next((rows for rows in own if rows is not None), None)
            for key, metric in self._metrics if rows is None else keyed(read_metrics(rows)):
                yield Asked(key, metric, subject)

    async def _measured(
        self, stages: Sequence[Sequence[Asked]], job: Job, scope: Scope
    ) -> list[Result]:
        """Measure stage by stage; stop after a failed metric with `fail_on_error`."""
        found: list[Result] = []
        for stage in stages:
            measures = [self._measuring.measure(one, job, scope) for one in stage]
            found += await side_by_side(measures)
            last = found[-1]
            if last.failure is not None and last.asked.settings.fail_on_error:
                break
        return found


def _stages(asked: Iterator[Asked]) -> list[list[Asked]]:
    """Group metrics to measure concurrently; one with `fail_on_error` ends its stage."""
    stages: list[list[Asked]] = [[]]
    for one in asked:
        stages[-1].append(one)
        if one.settings.fail_on_error:
            stages.append([])
    return [stage for stage in stages if stage]


def _means(results: Sequence[Result]) -> dict[str, float]:
    """Mean of each metric over the exchanges that have a score, 0 included."""
    scores: dict[str, list[float]] = {}
    for one in results:
        if one.score is not None:
            scores.setdefault(one.asked.key, []).append(one.score)
    # most conversations are one exchange, and `fmean` takes as long as the rest of this
    return {key: row[0] if len(row) == 1 else fmean(row) for key, row in scores.items()}


def _of_metrics(results: Sequence[Result], several: bool) -> Iterator[Finding]:
    """Findings of the metrics that did not pass, with reasons."""
    for one in results:
        if one.passed is not False or one.score is None:
            continue
        key, settings, subject = one.asked
        least = settings.threshold
        needed = "" if least is None else f", {least:g} needed"
        why = f": {one.reason}" if one.reason else ""
        severity = "high" if one.score < 1 / 3 else "medium"
        text = f"{_where(subject.index, several)}{key} {one.score:.2f}{needed}{why}"
        yield Finding(text, severity, key)


def _where(index: int, several: bool) -> str:
    return f"turn {index + 1}, " if several else ""


CaseOf = Callable[[Case], Mapping[str, object]]
"""Returns a case in the form of agent tests: `input`, `ground_truth`, `retrieval_context`."""

VERIFICATION = "verification"


class AnswerScorer:
    """Implements `kept.core.ports.Scorer` on the answer of a rollout."""

    def __init__(
        self, inner: DialogueScorer, case_of: CaseOf, answer_of: Callable[[str], str | Failure]
    ) -> None:
        self._inner = inner
        self._case_of = case_of
        self._answer_of = answer_of

    async def score(
        self, job: Job, rollout: Rollout, candidate: Candidate, case: Case, scope: Scope
    ) -> Score | Failure:
        """Measure only the answer, without the text around it."""
        own = failure_of(rollout.trace)
        answer = self._answer_of(rollout.output) if own is None else own
        if isinstance(answer, Failure):
            told = TraceItem(VERIFICATION, answer.message, {"kind": answer.kind})
            return Score({}, details=(told,), failure=answer)
        data = self._case_of(case)
        trace = (TraceItem("user", str(data["input"])), answered(answer, 0.0))
        bare = Rollout(output=answer, metrics=rollout.metrics, trace=trace)
        found = await self._inner.score(job, bare, candidate, Case(case.id, data), scope)
        if isinstance(found, Failure) or found.failure is not None:
            return found
        return _as_skill(found, str(data.get("ground_truth") or ""))

    async def close(self) -> None:
        """End the processes of metrics."""
        await self._inner.close()


def _as_skill(found: Score, reference: str) -> Score:
    scores = {name: value for name, value in found.metrics.items() if name != PASSED}
    hard = found.metrics.get(PASSED, 0.0)
    # a score outside of its range has no place in a mean
    soft = fmean(min(1.0, max(0.0, value)) for value in scores.values()) if scores else hard
    figures = ", ".join(f"{name} {value:.3g}" for name, value in scores.items())
    data: dict[str, object] = {"reference": reference} if reference else {}
    told = TraceItem(VERIFICATION, f"hard {hard:g}, soft {soft:.3g}; {figures}", data)
    metrics = {**scores, "hard": hard, "soft": soft}
    measured = tuple(item for item in found.details if item.role == "metric")
    return Score(metrics, found.findings, (*measured, told))
