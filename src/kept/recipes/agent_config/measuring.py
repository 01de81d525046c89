"""What is wrong with the metrics of an agent, and which of its cases they cannot measure."""

from collections.abc import Iterator

from kept.core.words import count
from kept.evaluators.metrics.checking import faults_of, lack_of
from kept.evaluators.metrics.config import Metric, read_metric
from kept.evaluators.metrics.subject import turns_of
from kept.recipes.agent_config.cases import case_of
from kept.recipes.agent_config.spec.cases import TestCaseSpec, metrics_of
from kept.recipes.agent_config.spec.metrics import AnyMetricSpec
from kept.recipes.agent_config.spec.read import ReadAgent
from kept.recipes.agent_config.spec.tools import (
    AnyToolSpec,
    HierarchicalDocumentToolSpec,
    McpToolSpec,
    VectorstoreToolSpec,
)
from kept.spec.yaml import Loc

NAMED = 3
"""Cases that a warning names."""


def all_metrics(read: ReadAgent) -> Iterator[tuple[Loc, AnyMetricSpec]]:
    """The metrics of the agent and of its cases, each with where it stands."""
    for number, metric in enumerate(read.agent.spec.metrics):
        yield ("evaluations", "metrics", number), metric
    for case in read.cases:
        for turn in case.exchanges:
            for metric in metrics_of((), case, turn):
                yield ("test_cases",), metric


def metric_problems(read: ReadAgent) -> Iterator[tuple[Loc, str]]:
    """What no run could do with a metric, each with where it stands."""
    for loc, spec in all_metrics(read):
        if spec.enabled:
            for key, problem in faults_of(_settings(spec)):
                yield (*loc, key) if len(loc) > 1 else loc, problem


def metric_warnings(read: ReadAgent) -> Iterator[str]:
    """Metrics that some cases have nothing to be measured by."""
    spec = read.agent.spec
    retrieves = any(map(_retrieves, spec.tools))
    lacks: dict[tuple[str, str], dict[str, None]] = {}
    for case in read.cases:
        for metric, turn in _measured(case, spec.metrics):
            why = lack_of(metric, turn, retrieves=retrieves)
            if why is not None:
                lacks.setdefault((metric.name, why), {})[case.name or ""] = None
    for (name, why), cases in lacks.items():
        shown = ", ".join(f"`{case}`" for case in [*cases][:NAMED])
        more = f" and {len(cases) - NAMED} more" if len(cases) > NAMED else ""
        verb = "has" if len(cases) == 1 else "have"
        yield f"`{name}`: {count(len(cases), 'case')} {verb} {why}: {shown}{more}"


def _measured(
    case: TestCaseSpec, agent: tuple[AnyMetricSpec, ...]
) -> Iterator[tuple[Metric, dict[str, object]]]:
    turns = turns_of(case_of(case))
    for spec, turn in zip(case.exchanges, turns, strict=True):
        for metric in metrics_of(agent, case, spec):
            if metric.enabled:
                yield _settings(metric), dict(turn)


def _settings(spec: AnyMetricSpec) -> Metric:
    return read_metric(spec.model_dump())


def _retrieves(tool: AnyToolSpec) -> bool:
    if isinstance(tool, McpToolSpec):
        return tool.is_retrieval
    return isinstance(tool, VectorstoreToolSpec | HierarchicalDocumentToolSpec)
