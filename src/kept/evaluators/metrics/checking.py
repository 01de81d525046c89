"""What is wrong with a metric or a case before anything is spent on it; costs no process."""

from collections.abc import Iterator, Mapping
from typing import Any

from kept.evaluators.metrics.config import GRADED, LIKENESS, GEvalMetric, Metric, RagMetric
from kept.evaluators.metrics.config import StandardMetric as Standard
from kept.evaluators.metrics.exact import number_in
from kept.evaluators.metrics.likeness import missing_library
from kept.evaluators.metrics.rag import NEEDS_CONTEXT, NEEDS_TRUTH
from kept.settings import install_command


def is_judged(metric: Metric) -> bool:
    """Whether it needs a model as judge."""
    if isinstance(metric, Standard):
        return metric.metric in GRADED
    return isinstance(metric, GEvalMetric | RagMetric)


def faults_of(metric: Metric) -> Iterator[tuple[str, str]]:
    """Keys of a metric that cannot be as they are, each with why."""
    if not isinstance(metric, Standard):
        return
    if metric.metric in GRADED and metric.scale < 2:
        yield "scale", "a scale has at least two grades"
    if metric.metric in LIKENESS and (library := missing_library(metric.metric)):
        yield "metric", f"`{metric.metric}` needs `{library}`: {install_command('metrics')}"


def lack_of(metric: Metric, turn: Mapping[str, Any], *, retrieves: bool = True) -> str | None:
    """What a turn has not got that a metric measures by; None where it has all.

    `retrieves` says that the agent has tools that may find passages.
    """
    truth, passages = turn.get("ground_truth"), turn.get("retrieval_context")
    if truth is None and _needs_truth(metric):
        return "no `ground_truth`"
    if isinstance(metric, Standard) and metric.metric == "numeric":
        return (
            None if number_in(metric, truth) is not None else "a `ground_truth` that is no number"
        )
    finds = bool(passages) or (passages is None and retrieves)
    if isinstance(metric, RagMetric) and metric.metric_type in NEEDS_CONTEXT and not finds:
        return "no `retrieval_context`, and the agent no tool that finds any"
    return None


def _needs_truth(metric: Metric) -> bool:
    if isinstance(metric, Standard):
        return metric.metric not in GRADED
    if isinstance(metric, GEvalMetric):
        return "expected_output" in metric.evaluation_params
    return isinstance(metric, RagMetric) and metric.metric_type in NEEDS_TRUTH
