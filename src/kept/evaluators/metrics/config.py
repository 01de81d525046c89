"""Metric configs, one class for each kind with the YAML names, and metric inputs.

A metric looks at one exchange of a conversation and the annotations of its case. Pure. Files were
validated when they were read: a wrong name here is a programming error.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, NamedTuple, cast

from kept.core.case import Case
from kept.core.llm import PASSED, Exchange, ToolUse
from kept.core.untyped import is_list

Kind = Literal["standard", "geval", "rag", "code"]
Likeness = Literal["bleu", "rouge", "meteor"]
Graded = Literal["groundedness", "relevance", "coherence", "fluency"]
Standard = Likeness | Graded | Literal["equality", "numeric"]
RagType = Literal[
    "faithfulness",
    "answer_relevancy",
    "contextual_precision",
    "contextual_recall",
    "contextual_relevancy",
]
Param = Literal["input", "actual_output", "expected_output", "context", "retrieval_context"]

LIKENESS: tuple[Likeness, ...] = ("bleu", "rouge", "meteor")
GRADED: tuple[Graded, ...] = ("groundedness", "relevance", "coherence", "fluency")

RETRIES = 1
"""Default number of retries of a judge or a grader that failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """Settings that all kinds of metrics share."""

    enabled: bool = True
    threshold: float | None = None
    """Minimum score that passes."""
    fail_on_error: bool = False
    """True to stop measuring a case if this metric could not be measured."""
    retry_on_failure: int = RETRIES
    timeout_ms: int | None = None
    """Time limit for one question to a judge or one grader call; None for the scorer's default."""
    model: Mapping[str, object] | None = None
    """Judge of this metric only, as in the YAML."""

    @property
    def name(self) -> str:
        """Name of the metric, before duplicates get a number."""
        raise NotImplementedError

    @property
    def kind(self) -> Kind:
        """Kind of the metric."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class StandardMetric(Metric):
    """Metric that compares with the ground truth, or has a judge grade the answer."""

    metric: Standard
    scale: int = 5
    """Highest grade of a judge's scale; the lowest is 1."""
    custom_prompt: str = ""
    """Prompt in place of Kept's own, for judged metrics."""
    response_path: str = ""
    """Path of the measured value in a JSON answer: `a.b[0].c`."""
    case_insensitive: bool = False
    strip_whitespace: bool = False
    strip_punctuation: bool = False
    absolute_tolerance: float = 1e-6
    relative_tolerance: float = 0.0
    accept_percent: bool = False
    accept_thousands_separators: bool = False

    @property
    def name(self) -> str:
        """Name of the measure."""
        return self.metric

    @property
    def kind(self) -> Kind:
        """Standard."""
        return "standard"


@dataclass(frozen=True, slots=True, kw_only=True)
class GEvalMetric(Metric):
    """Metric that a judge grades by the user's criteria."""

    called: str
    """`name` of the YAML."""
    criteria: str
    evaluation_steps: tuple[str, ...] = ()
    evaluation_params: tuple[Param, ...] = ("actual_output",)
    strict_mode: bool = False
    """True to grade all or nothing."""

    @property
    def name(self) -> str:
        """Name given by the user."""
        return self.called

    @property
    def kind(self) -> Kind:
        """Geval."""
        return "geval"


@dataclass(frozen=True, slots=True, kw_only=True)
class RagMetric(Metric):
    """Metric for which a judge checks an answer and retrieved passages piece by piece."""

    metric_type: RagType
    threshold: float | None = 0.5
    include_reason: bool = True

    @property
    def name(self) -> str:
        """Name of the measure."""
        return self.metric_type

    @property
    def kind(self) -> Kind:
        """Rag."""
        return "rag"


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeMetric(Metric):
    """Metric that calls a user function."""

    grader: str
    """`module:function`."""
    called: str = ""
    """`name` of the YAML."""

    @property
    def name(self) -> str:
        """Name given by the user, else the name of the function."""
        return self.called or self.grader.rpartition(":")[2]

    @property
    def kind(self) -> Kind:
        """Code."""
        return "code"


_CLASSES: Mapping[str, type[Metric]] = {
    "standard": StandardMetric,
    "geval": GEvalMetric,
    "rag": RagMetric,
    "code": CodeMetric,
}


_TOLD_BY: Mapping[str, str] = {"metric_type": "rag", "criteria": "geval", "grader": "code"}
"""Keys of one kind only, which identify the kind if `type` is missing."""


def read_metrics(rows: Iterable[Mapping[str, Any]]) -> tuple[Metric, ...]:
    """Read a list of metrics from YAML; keys that are None keep their defaults."""
    return tuple(map(read_metric, rows))


def read_metric(row: Mapping[str, Any]) -> Metric:
    """Read one metric; raises `ValueError` for an unknown kind or key."""
    given = {key: value for key, value in row.items() if value is not None}
    told = next((kind for key, kind in _TOLD_BY.items() if key in given), "standard")
    kind = given.pop("type", told)
    if kind not in _CLASSES:
        raise ValueError(f"there is no metric of the type `{kind}`")
    made: Any = _CLASSES[kind]
    if "name" in given and made in (GEvalMetric, CodeMetric):
        given["called"] = given.pop("name")
    known = {one.name for one in fields(made)}
    if strange := [key for key in given if key not in known]:
        raise ValueError(f"a metric of the type `{kind}` has no `{strange[0]}`")
    for key, value in given.items():
        if is_list(value):
            given[key] = tuple(value)
    return made(**given)


def keyed(metrics: Iterable[Metric]) -> tuple[tuple[str, Metric], ...]:
    """Enabled metrics, each with the key of its score.

    Duplicate names get numbers, `name_2` and `name_3`: each has its own settings, so each is a
    measure of its own.
    """
    taken = {PASSED}
    found: list[tuple[str, Metric]] = []
    for metric in metrics:
        if not metric.enabled:
            continue
        key, n = metric.name, 2
        while key in taken:
            key, n = f"{metric.name}_{n}", n + 1
        taken.add(key)
        found.append((key, metric))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Subject:
    """Inputs of metrics: one exchange and the annotations of its case."""

    input: str
    response: str
    ground_truth: str | None = None
    context: tuple[str, ...] = ()
    """Passages of the case, else those that tools found."""
    uses: tuple[ToolUse, ...] = ()
    index: int = 0
    case_name: str = ""
    turn_config: Mapping[str, object] = field(default_factory=dict[str, object])


class Measured(NamedTuple):
    """Result of one metric; one that could not be measured is a `Failure` instead."""

    score: float | None
    """Score from 0 to 1; None if the case lacks what the metric needs."""
    passed: bool | None = None
    """Verdict of the metric itself, used if there is no threshold."""
    reason: str = ""
    error: str = ""
    """Reason why the answer cannot be measured; empty if it can."""
    details: Mapping[str, object] = {}


def unreadable(why: str) -> Measured:
    """Worst score for an answer that a metric cannot read: the candidate's fault."""
    return Measured(0.0, False, why, why)


def unmeasured(why: str) -> Measured:
    """No score: the case lacks what the metric needs, which is no failure."""
    return Measured(None, reason=f"not measured: {why}")


def lacking(what: str) -> Measured:
    """No score: the case lacks the field `what`."""
    return unmeasured(f"the case has no `{what}`")


def turns_of(case: Case) -> Sequence[Mapping[str, Any]]:
    """Annotations of a case, one mapping per exchange."""
    data = cast("Mapping[str, Any]", case.data)
    turns: Sequence[Mapping[str, Any]] | None = data.get("turns")
    return turns if turns else (data,)


def subject_of(case: Case, index: int, turn: Mapping[str, Any], exchange: Exchange) -> Subject:
    """Exchange with the annotations of its case."""
    data = cast("Mapping[str, Any]", case.data)
    truth: object = turn.get("ground_truth")
    own: Sequence[str] | None = turn.get("retrieval_context")
    return Subject(
        exchange.input,
        exchange.response,
        None if truth is None else str(truth),
        exchange.context if own is None else tuple(own),
        exchange.uses,
        index,
        str(data.get("name") or case.id),
        turn.get("turn_config") or {},
    )
