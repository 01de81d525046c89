"""Validation of metrics before a run, and evaluation of one metric of one exchange.

A metric is measured by its kind and compared with its threshold. One that could not be measured has
no score; its failure says who is to blame. Validation starts no process.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, cast

from kept.core.ports import Model, Scope
from kept.core.rollout import Blame, Failure, Job, TraceItem
from kept.core.text import count
from kept.evaluators.metrics.code_grader import Graders
from kept.evaluators.metrics.config import (
    GRADED,
    LIKENESS,
    CodeMetric,
    GEvalMetric,
    Likeness,
    Measured,
    Metric,
    RagMetric,
    StandardMetric,
    Subject,
    lacking,
    unreadable,
)
from kept.evaluators.metrics.config import StandardMetric as Standard
from kept.evaluators.metrics.deterministic import (
    Alike,
    NoValue,
    equality,
    missing_library,
    number_in,
    numeric,
    value_at,
)
from kept.evaluators.metrics.llm_graded import (
    NEEDS_CONTEXT,
    NEEDS_TRUTH,
    Judge,
    Prompts,
    geval,
    graded,
    rag,
)
from kept.models.ask import draw_seed
from kept.settings import install_command


def is_judged(metric: Metric) -> bool:
    """True if the metric needs a model as judge."""
    if isinstance(metric, Standard):
        return metric.metric in GRADED
    return isinstance(metric, GEvalMetric | RagMetric)


def faults_of(metric: Metric) -> Iterator[tuple[str, str]]:
    """Invalid keys of a metric, each with the reason."""
    if not isinstance(metric, Standard):
        return
    if metric.metric in GRADED and metric.scale < 2:
        yield "scale", "a scale has at least two grades"
    if metric.metric in LIKENESS and (library := missing_library(metric.metric)):
        yield "metric", f"`{metric.metric}` needs `{library}`: {install_command('metrics')}"


def lack_of(metric: Metric, turn: Mapping[str, Any], *, retrieves: bool = True) -> str | None:
    """Text that names what a turn lacks for a metric; None if it has all.

    `retrieves` says that the agent has tools that may find passages.
    """
    truth, passages = turn.get("ground_truth"), turn.get("retrieval_context")
    match metric:
        case Standard():
            needs_truth = metric.metric not in GRADED
        case GEvalMetric():
            needs_truth = "expected_output" in metric.evaluation_params
        case _:
            needs_truth = isinstance(metric, RagMetric) and metric.metric_type in NEEDS_TRUTH
    if truth is None and needs_truth:
        return "no `ground_truth`"
    if isinstance(metric, Standard) and metric.metric == "numeric":
        return (
            None if number_in(metric, truth) is not None else "a `ground_truth` that is no number"
        )
    # an empty list in the case means that there are no passages, None that tools find them
    finds = bool(passages) or (passages is None and retrieves)
    if isinstance(metric, RagMetric) and metric.metric_type in NEEDS_CONTEXT and not finds:
        return "no `retrieval_context`, and the agent no tool that finds any"
    return None


JudgeOf = Callable[[Mapping[str, object] | None], Model | None]
"""Returns the judge of a metric's own `model`; with None, the common judge."""

LONGEST = 200_000
"""Maximum length of an answer that is compared, as comparing blocks other rollouts."""

METRIC = "metric"
"""Role of trace items about metrics."""


@dataclass(frozen=True, slots=True)
class Means:
    """Resources for measuring metrics."""

    judge_of: JudgeOf
    folder: Path
    """Folder of graders."""
    timeout: float = 60.0
    """Default time limit for one question or call, in seconds."""
    prompts: Prompts = field(default_factory=dict[str, str])  # pyright: ignore[reportAssignmentType] # none of them
    passed_on: tuple[str, ...] = ()
    """Further variables of Kept's environment that graders may see."""


class Asked(NamedTuple):
    """A metric and the exchange to measure."""

    key: str
    settings: Metric
    subject: Subject


@dataclass(frozen=True, slots=True)
class Result:
    """Result of one metric on one exchange."""

    asked: Asked
    score: float | None
    passed: bool | None
    """Verdict; None if it was not measured."""
    reason: str = ""
    error: str = ""
    blame: Blame | None = None
    failure: Failure | None = None
    """Failure of the harness, if that is why there is no score."""
    tries: int = 1
    seconds: float = 0.0
    """Time spent waiting for a judge or a grader."""
    model: str = ""
    details: Mapping[str, object] = field(default_factory=dict[str, object])

    @property
    def told(self) -> TraceItem:
        """Trace item of the result."""
        key, settings, subject = self.asked
        data: dict[str, object] = {
            "metric": key,
            "kind": settings.kind,
            "exchange": subject.index,
            "score": self.score,
            "threshold": settings.threshold,
            "passed": self.passed,
            "error": self.error,
            "blame": self.blame or "",
            "tries": self.tries,
            "seconds": self.seconds,
            "model": self.model,
        }
        data |= {"details": dict(self.details)} if self.details else {}
        return TraceItem(METRIC, self.reason, data)


class Measuring:
    """Evaluator of metrics that owns the worker processes."""

    def __init__(self, means: Means) -> None:
        self._means = means
        self._alike = Alike()
        self._graders = Graders(means.folder, means.passed_on)

    def close(self) -> None:
        """End the processes."""
        self._alike.close()
        self._graders.close()

    async def measure(self, asked: Asked, job: Job, scope: Scope) -> Result:
        """Measure one metric, with a branch of the scope for its questions."""
        settings, subject = asked.settings, asked.subject
        if isinstance(settings, CodeMetric):
            began = time.monotonic()
            measured, tries = await self._graders.measure(
                settings, subject, self._seconds(settings)
            )
            took = round(time.monotonic() - began, 2)
            return replace(_result(asked, measured), tries=tries, seconds=took)
        judge = self._judge(asked, job, scope) if is_judged(settings) else None
        result = _result(asked, await self._measured(settings, subject, judge))
        if judge is None:
            return result
        heard = round(judge.seconds, 4)
        return replace(result, tries=judge.tries, model=judge.model.name, seconds=heard)

    async def _measured(
        self, settings: Metric, subject: Subject, judge: Judge | None
    ) -> Measured | Failure:
        if isinstance(settings, StandardMetric):
            if settings.response_path:
                try:
                    subject = replace(
                        subject, response=value_at(subject.response, settings.response_path)
                    )
                except NoValue as error:
                    return unreadable(str(error))
            if not is_judged(settings):
                return await self._compared(settings, subject)
        if judge is None:
            message = "there is no model to judge: name one in `evaluations.model`"
            return Failure("harness", "infrastructure", message)
        prompts = self._means.prompts
        match settings:
            case StandardMetric():
                return await graded(settings, subject, judge, prompts)
            case GEvalMetric():
                return await geval(settings, subject, judge, prompts)
            case RagMetric():
                return await rag(settings, subject, judge, prompts)
            case _:
                raise AssertionError(settings)

    async def _compared(self, settings: StandardMetric, subject: Subject) -> Measured | Failure:
        truth, response = subject.ground_truth, subject.response
        if truth is None:
            return lacking("ground_truth")
        if len(response) > LONGEST:
            return unreadable(f"{count(len(response), 'character')} are too many to compare")
        if settings.metric == "equality":
            return equality(settings, response, truth)
        if settings.metric == "numeric":
            return numeric(settings, response, truth)
        name = cast("Likeness", settings.metric)
        assert name in LIKENESS
        return await self._alike.measure(name, response, truth, self._seconds(settings))

    def _judge(self, asked: Asked, job: Job, scope: Scope) -> Judge | None:
        settings = asked.settings
        model = self._means.judge_of(settings.model)
        if model is None:
            return None
        index = asked.subject.index
        return Judge(
            model,
            scope.branch(f"metric-{index}-{asked.key}"),
            seconds=self._seconds(settings),
            retries=settings.retry_on_failure,
            seed=draw_seed(job.purpose, job.case_id, job.repeat, index, asked.key),
        )

    def _seconds(self, settings: Metric) -> float:
        given = settings.timeout_ms
        return self._means.timeout if given is None else given / 1000


def _result(asked: Asked, measured: Measured | Failure) -> Result:
    if isinstance(measured, Failure):
        message = f"`{asked.key}`: {measured.message}"
        # `tried`: retries were already done, as often as the metric allows
        failure = replace(measured, message=message, tried=True)
        error = measured.message
        return Result(asked, None, None, "", error, "infrastructure", failure)
    score, own, reason, error, details = measured
    if score is None:
        return Result(asked, None, None, reason)
    if error:
        return Result(asked, score, False, reason, error, "candidate", details=details)
    passed = _passes(asked.settings, score, own)
    return Result(asked, score, passed, reason, details=details)


def _passes(settings: Metric, score: float, own: bool | None) -> bool:
    """Decide by the threshold, else by the metric's own verdict, else by a score above 0."""
    least = settings.threshold
    if isinstance(settings, GEvalMetric) and settings.strict_mode:
        least = 1.0
    # the metric's own verdict has applied the threshold: for graders, and for one above 1
    settled = isinstance(settings, CodeMetric) or (least is not None and least > 1)
    if own is not None and (least is None or settled):
        return own
    return score > 0 if least is None else score >= least
