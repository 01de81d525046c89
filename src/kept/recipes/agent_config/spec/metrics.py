"""Schema of the metrics of an agent."""

import re
from typing import Annotated, Literal, cast

from pydantic import AfterValidator, BeforeValidator, Field

from kept.core.untyped import is_dict
from kept.recipes.agent_config.spec.common import LlmSpec, Loose, Share, Words
from kept.spec.validate import Count, Finite, SpecModel, Texts, some

Standard = Literal[
    "groundedness",
    "relevance",
    "coherence",
    "fluency",
    "bleu",
    "rouge",
    "meteor",
    "equality",
    "numeric",
]
Rag = Literal[
    "faithfulness",
    "contextual_relevancy",
    "contextual_precision",
    "contextual_recall",
    "answer_relevancy",
]
Param = Literal["input", "actual_output", "expected_output", "context", "retrieval_context"]
Tolerance = Annotated[Finite, Field(ge=0)]

_TOLD_BY = {"metric_type": "rag", "criteria": "geval", "grader": "code"}


def _kind(value: object) -> object:
    """Add the type to a metric that has none, as its keys suggest."""
    if not is_dict(value) or "type" in value:
        return cast("object", value)
    kind = next((kind for key, kind in _TOLD_BY.items() if key in value), "standard")
    return {"type": kind, **value}


def _grader(text: str) -> str:
    if not re.fullmatch(r"\w+(\.\w+)*:\w+", text):
        raise ValueError(
            f"`{text}` is not a grader; write module:function, as in graders.money:near"
        )
    return text


def _path(text: str) -> str:
    if not re.fullmatch(r"(\w[\w-]*|\[\d+\])(\.\w[\w-]*|\[\d+\])*", text):
        raise ValueError(f"`{text}` is not a path into an answer; write it as in a.b[0].c")
    return text


class MetricSpec(SpecModel):
    """Fields common to all metrics."""

    enabled: bool = True
    fail_on_error: bool = False
    """True if a case fails when the metric itself fails."""

    @property
    def is_judged(self) -> bool:
        """True if a model judges."""
        return True

    @property
    def function(self) -> str:
        """User's grading function, `module:function`; empty if there is none."""
        return ""


class StandardMetricSpec(MetricSpec):
    """A metric that comes with Kept."""

    type: Literal["standard"]
    metric: Standard
    threshold: Finite | None = None
    scale: Count | None = None
    model: LlmSpec | None = None
    retry_on_failure: Annotated[int, Field(ge=1, le=3)] | None = None
    timeout_ms: Count | None = None
    custom_prompt: Words | None = None
    case_insensitive: bool = False
    strip_whitespace: bool = False
    strip_punctuation: bool = False
    absolute_tolerance: Tolerance = 1e-6
    relative_tolerance: Tolerance = 0.0
    accept_percent: bool = False
    accept_thousands_separators: bool = False
    response_path: Annotated[Words, AfterValidator(_path)] | None = None
    """Part of a JSON answer that is measured, as in `a.b[0].c`."""

    @property
    def key(self) -> str:
        """Name of its scores."""
        return self.metric

    @property
    def is_judged(self) -> bool:
        """True for metrics that need a model's judgement."""
        return self.metric in ("groundedness", "relevance", "coherence", "fluency")


class GEvalMetricSpec(MetricSpec):
    """Criteria in words, judged by a model."""

    type: Literal["geval"]
    name: Words
    criteria: Words
    evaluation_steps: Texts | None = None
    evaluation_params: Annotated[tuple[Param, ...], Field(strict=False), AfterValidator(some)] = (
        "actual_output",
    )
    strict_mode: bool = False
    threshold: Share | None = None
    model: LlmSpec | None = None

    @property
    def key(self) -> str:
        """Name of its scores."""
        return self.name


class RagMetricSpec(MetricSpec):
    """Quality of the retrieved passages, or of their use."""

    type: Literal["rag"]
    metric_type: Rag
    threshold: Share = 0.5
    include_reason: bool = True
    model: LlmSpec | None = None

    @property
    def key(self) -> str:
        """Name of its scores."""
        return self.metric_type


class CodeMetricSpec(MetricSpec):
    """A grading function of the user."""

    type: Literal["code"]
    grader: Annotated[Words, AfterValidator(_grader)]
    threshold: Finite | None = None
    name: Words | None = None

    @property
    def key(self) -> str:
        """Name of its scores."""
        return self.name or self.grader.partition(":")[2]

    @property
    def is_judged(self) -> bool:
        """Always False: a function grades."""
        return False

    @property
    def function(self) -> str:
        """Path of the grading function."""
        return self.grader


AnyMetricSpec = Annotated[
    Annotated[
        StandardMetricSpec | GEvalMetricSpec | RagMetricSpec | CodeMetricSpec,
        Field(discriminator="type"),
    ],
    BeforeValidator(_kind),
]
Metrics = Annotated[tuple[AnyMetricSpec, ...], Field(strict=False), AfterValidator(some)]


class EvaluationsSpec(SpecModel):
    """Metrics of an agent, for cases and turns without their own."""

    model: LlmSpec | None = None
    """Model of the judge, unless a metric names one."""
    metrics: Metrics
    optimizer: Loose | None = None
    """Settings for tuning the agent, validated in `optimizer.py`."""
