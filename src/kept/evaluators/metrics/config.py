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
"""How often a judge or a grader that failed is tried again, unless a metric says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """What all kinds have in common."""

    enabled: bool = True
    threshold: float | None = None
    """The least score that passes."""
    fail_on_error: bool = False
    """Whether nothing is measured any more of a case where this could not be measured."""
    retry_on_failure: int = RETRIES
    timeout_ms: int | None = None
    """For one question to a judge, or one call of a grader; None leaves it to the scorer."""
    model: Mapping[str, object] | None = None
    """The judge of this metric alone, as the YAML has it."""

    @property
    def name(self) -> str:
        """What it is called, before a second one of that name is told apart."""
        raise NotImplementedError

    @property
    def kind(self) -> Kind:
        """Which kind it is."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class StandardMetric(Metric):
    """Compares with the ground truth, or has a judge grade the answer."""

    metric: Standard
    scale: int = 5
    """Of a graded one: its greatest grade; the least is 1."""
    custom_prompt: str = ""
    """Of a graded one: stands for the prompt of Kept's own."""
    response_path: str = ""
    """Where in a JSON answer the value stands that is measured: `a.b[0].c`."""
    case_insensitive: bool = False
    strip_whitespace: bool = False
    strip_punctuation: bool = False
    absolute_tolerance: float = 1e-6
    relative_tolerance: float = 0.0
    accept_percent: bool = False
    accept_thousands_separators: bool = False

    @property
    def name(self) -> str:
        """That of the measure."""
        return self.metric

    @property
    def kind(self) -> Kind:
        """Standard."""
        return "standard"


@dataclass(frozen=True, slots=True, kw_only=True)
class GEvalMetric(Metric):
    """Has a judge grade by criteria of the user's."""

    called: str
    """`name` of the YAML."""
    criteria: str
    evaluation_steps: tuple[str, ...] = ()
    evaluation_params: tuple[Param, ...] = ("actual_output",)
    strict_mode: bool = False
    """Whether it is all or nothing."""

    @property
    def name(self) -> str:
        """As the user calls it."""
        return self.called

    @property
    def kind(self) -> Kind:
        """Geval."""
        return "geval"


@dataclass(frozen=True, slots=True, kw_only=True)
class RagMetric(Metric):
    """Has a judge look at an answer and the passages that were found, piece by piece."""

    metric_type: RagType
    threshold: float | None = 0.5
    include_reason: bool = True

    @property
    def name(self) -> str:
        """That of the measure."""
        return self.metric_type

    @property
    def kind(self) -> Kind:
        """Rag."""
        return "rag"


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeMetric(Metric):
    """Calls a function of the user's."""

    grader: str
    """`module:function`."""
    called: str = ""
    """`name` of the YAML."""

    @property
    def name(self) -> str:
        """As the user calls it, else that of the function."""
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
"""What only one kind has, which tells it where nobody says `type`."""


def read_metrics(rows: Iterable[Mapping[str, Any]]) -> tuple[Metric, ...]:
    """The metrics of a list of the YAML; what is None there is left to its default."""
    return tuple(map(read_metric, rows))


def read_metric(row: Mapping[str, Any]) -> Metric:
    """One of them; raises `ValueError` for a kind or a key that there is not."""
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
    """Those that are switched on, each under the key that its score is told by.

    Of several of one name the second is `name_2`, the third `name_3`: each has its own settings,
    so each is a measure of its own.
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
    """One exchange."""

    input: str
    response: str
    ground_truth: str | None = None
    context: tuple[str, ...] = ()
    """Passages: the case's own, else those that tools found."""
    uses: tuple[ToolUse, ...] = ()
    index: int = 0
    case_name: str = ""
    turn_config: Mapping[str, object] = field(default_factory=dict[str, object])


class Measured(NamedTuple):
    """What one metric came to; a metric that could not be measured is a `Failure` instead."""

    score: float | None
    """Between 0 and 1; None where the case has nothing to measure by."""
    passed: bool | None = None
    """What the metric itself thinks of it, which counts where there is no threshold."""
    reason: str = ""
    error: str = ""
    """What is wrong with the answer, so that it cannot be looked at."""
    details: Mapping[str, object] = {}


def unreadable(why: str) -> Measured:
    """An answer that a metric cannot make sense of: the candidate's fault, and its worst score."""
    return Measured(0.0, False, why, why)


def unmeasured(why: str) -> Measured:
    """A case that a metric has nothing to measure by: nobody's fault, and no score."""
    return Measured(None, reason=f"not measured: {why}")


def lacking(what: str) -> Measured:
    """The same for a case without this."""
    return unmeasured(f"the case has no `{what}`")


def turns_of(case: Case) -> Sequence[Mapping[str, Any]]:
    """What a case says of each exchange."""
    data = cast("Mapping[str, Any]", case.data)
    turns: Sequence[Mapping[str, Any]] | None = data.get("turns")
    return turns if turns else (data,)


def subject_of(case: Case, index: int, turn: Mapping[str, Any], exchange: Exchange) -> Subject:
    """An exchange with what its case says of it."""
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
