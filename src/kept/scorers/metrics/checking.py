"""What is wrong with a metric or a case before anything is spent on it; costs no process."""

from collections.abc import Iterator, Mapping
from typing import Any

from kept.scorers.metrics.config import (
    GRADED,
    LIKENESS,
    GEvalMetric,
    Metric,
    RagMetric,
    StandardMetric,
)
from kept.scorers.metrics.exact import number_in
from kept.scorers.metrics.expecting import Regex, problem_with_pattern, read_expected
from kept.scorers.metrics.likeness import missing_library
from kept.scorers.metrics.path import is_path
from kept.scorers.metrics.rag import NEEDS_TRUTH


def is_judged(metric: Metric) -> bool:
    """Whether it needs a model as judge."""
    if isinstance(metric, StandardMetric):
        return metric.metric in GRADED
    return isinstance(metric, GEvalMetric | RagMetric)


def faults_of(metric: Metric) -> Iterator[tuple[str, str]]:
    """Keys of a metric that cannot be as they are, each with why."""
    if not isinstance(metric, StandardMetric):
        return
    if metric.response_path and not is_path(metric.response_path):
        yield "response_path", f"`{metric.response_path}` is no path as in `a.b[0].c`"
    if metric.scale < 2:
        yield "scale", "a scale has at least two grades"
    if metric.custom_prompt and metric.metric not in GRADED:
        yield "custom_prompt", f"`{metric.metric}` asks no model"
    if metric.metric in LIKENESS:
        library = missing_library(metric.metric)
        if library is not None:
            yield "metric", f"`{metric.metric}` needs `{library}`: pip install 'kept[metrics]'"


def lack_of(metric: Metric, turn: Mapping[str, Any]) -> str | None:
    """What a case, or a turn of one, has not got that a metric measures by; None where it has."""
    truth = turn.get("ground_truth")
    if isinstance(metric, StandardMetric) and metric.metric not in GRADED:
        if truth is not None and metric.metric == "numeric" and number_in(metric, truth) is None:
            return "`ground_truth` is not a number"
        needs = True
    elif isinstance(metric, GEvalMetric):
        needs = "expected_output" in metric.evaluation_params
    else:
        needs = isinstance(metric, RagMetric) and metric.metric_type in NEEDS_TRUTH
    return f"`{metric.name}` needs a `ground_truth`" if needs and truth is None else None


def wrong_patterns(turn: Mapping[str, Any]) -> Iterator[tuple[int, str, str]]:
    """Expressions of expected tools that are none: which tool, which argument, and why."""
    for number, tool in enumerate(read_expected(turn.get("expected_tools") or ())):
        for name, matcher in tool.args.items():
            why = problem_with_pattern(matcher.pattern) if isinstance(matcher, Regex) else None
            if why is not None:
                yield number, name, why
