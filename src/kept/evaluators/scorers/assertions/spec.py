"""Assertions of a case in promptfoo's spelling, and their summary.

The key `assert` of a case is a list; this distinguishes them from a task's own. As in promptfoo,
a test passes if all assertions pass. With a threshold, their weighted mean must reach it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Annotated, Any, Literal, NamedTuple, cast

from pydantic import Field

from kept.core.untyped import is_list
from kept.sandbox.command import TIMEOUT
from kept.spec.source import kind_of
from kept.spec.validate import Finite, Seconds, SpecModel, Text, Texts
from kept.spec.yaml import Loc

SET = "assert-set"


@dataclass(frozen=True, slots=True)
class Assertion:
    """One property that an output must have."""

    type: str
    """Type without `not-`."""
    value: Any = None
    threshold: float | None = None
    weight: float = 1.0
    metric: str | None = None
    negated: bool = False
    config: Mapping[str, object] = field(default_factory=dict[str, object])
    parts: tuple["Assertion", ...] = ()
    """Assertions of a set."""

    @property
    def name(self) -> str:
        """Type as in the case, with `not-`."""
        return f"not-{self.type}" if self.negated else self.type


class Grade(NamedTuple):
    """Result of an assertion."""

    passed: bool
    score: float
    reason: str = ""
    """Reason why it did not pass, or the remark of a judge or function if it did."""


class Total(NamedTuple):
    """Combined result of several assertions."""

    grade: Grade
    metrics: Mapping[str, float]
    """Named metrics, each the weighted mean of its assertions."""
    told: tuple[tuple[Assertion, Grade], ...]
    """Assertions that are not sets, in order, with their grades."""


def read_assertions(given: object) -> tuple[Assertion, ...]:
    """Read the assertions of a case, which were validated with the task."""
    rows = cast("list[dict[str, Any]]", given) if isinstance(given, list) else []
    return tuple(_read(row) for row in rows)


def _read(row: Mapping[str, Any]) -> Assertion:
    kind = str(row["type"])
    return Assertion(
        kind.removeprefix("not-"),
        row.get("value"),
        row.get("threshold"),
        float(row.get("weight", 1.0)),
        row.get("metric"),
        kind.startswith("not-"),
        row.get("config") or {},
        read_assertions(row.get("assert")),
    )


def single(assertions: Sequence[Assertion], path: str = "") -> Iterator[tuple[str, Assertion]]:
    """Assertions that are not sets, each with its path."""
    for number, one in enumerate(assertions):
        here = f"{path}{number}"
        if one.type == SET:
            yield from single(one.parts, f"{here}.")
        else:
            yield here, one


def total(
    assertions: Sequence[Assertion],
    grades: Mapping[str, Grade],
    threshold: float | None = None,
    path: str = "",
) -> Total:
    """Combine grades, which are given by the paths of single assertions."""
    told: list[tuple[Assertion, Grade]] = []
    sums: dict[str, list[float]] = {}
    score = whole = 0.0
    failed = ""
    for number, one in enumerate(assertions):
        here = f"{path}{number}"
        if one.type == SET:
            inner = total(one.parts, grades, one.threshold, f"{here}.")
            grade = inner.grade
            told += inner.told
            named = inner.metrics
        else:
            grade = grades[here]
            told.append((one, grade))
            named = {}
        score += one.weight * grade.score
        whole += one.weight
        if one.metric is not None:
            named = {**named, one.metric: grade.score}
        for name, value in named.items():
            row = sums.setdefault(name, [0.0, 0.0])
            # weight 0 leaves the score alone, but a named metric still needs its mean
            weight = one.weight or 1.0
            row[:] = row[0] + weight * value, row[1] + weight
        # an assertion of weight 0 is measured but decides nothing
        if not grade.passed and one.weight:
            failed = failed or grade.reason or one.name
    mean = score / whole if whole else 0.0
    passed, reason = not failed, failed
    if threshold is not None:
        passed = mean >= threshold
        reason = "" if passed else f"{mean:.2f} together, {threshold:g} needed"
    metrics = {name: value / weight for name, (value, weight) in sums.items()}
    return Total(Grade(passed, mean, reason), metrics, tuple(told))


RESERVED = ("score", "pass")
"""Metrics that assertions emit by themselves."""

GRADED = ("llm-rubric", "model-graded-closedqa", "factuality", "model-graded-factuality")
"""Types that a model decides."""

REFUSED: Mapping[str, str] = {
    "javascript": "JavaScript is not run here; write the same as `type: python`",
    "ruby": "Ruby is not run here; write the same as `type: python`",
    "webhook": "call your service from `type: python` with `value: file://check.py`",
    "similar": "there are no embeddings here; use `levenshtein`, `llm-rubric` or `python`",
    "rouge-n": "use `contains-all`, or `python` with a library of yours",
    "bleu": "use `levenshtein`, or `python` with a library of yours",
    "gleu": "use `levenshtein`, or `python` with a library of yours",
    "meteor": "use `levenshtein`, or `python` with a library of yours",
    "g-eval": "use `llm-rubric` with the same criteria",
    "classifier": "call the classifier from `python`, or use `llm-rubric`",
    "moderation": "call the service from `python`, or use `llm-rubric`",
    "answer-relevance": "use `llm-rubric`, as in `value: It answers the question`",
    "context-faithfulness": "use `llm-rubric` with the context as a variable of its value",
    "context-recall": "use `llm-rubric` with the context as a variable of its value",
    "context-relevance": "use `llm-rubric` with the context as a variable of its value",
    "select-best": "that is what a run does: give the prompts, and the best is kept",
    "max-score": "that is what a run does: give the prompts, and the best is kept",
    "is-xml": "use `python`, as in `__import__('xml.dom.minidom').dom.minidom.parseString(output)`",
    "contains-xml": "use `regex`, or `python`",
    "is-html": "use `regex`, or `python`",
    "contains-html": "use `regex`, or `python`",
    "is-sql": "use `regex`, or `python` with a parser of yours",
    "contains-sql": "use `regex`, or `python` with a parser of yours",
    "perplexity": "the probabilities of tokens are not read here",
    "perplexity-score": "the probabilities of tokens are not read here",
    "human": "a run cannot wait for a person; use `llm-rubric`",
}
"""Unsupported types of promptfoo, with a hint for each."""


class AssertionSpec(SpecModel):
    """One property that an output must have."""

    type: Text
    value: Any = None
    threshold: Finite | None = None
    weight: Annotated[Finite, Field(ge=0)] = 1.0
    """Weight; with 0 it is measured but does not count."""
    metric: Text | None = None
    """Metric that it counts towards, besides the score."""
    config: dict[str, Any] = Field(default_factory=dict[str, Any])
    """Config of a Python assertion, passed in its context."""
    assert_: Annotated[tuple["AssertionSpec", ...] | None, Field(alias="assert", strict=False)] = (
        None
    )
    """Assertions of an `assert-set`."""

    @property
    def base(self) -> str:
        """The type without its `not-`."""
        return self.type.removeprefix("not-")


AssertionSpec.model_rebuild()


class AssertionsScorerSpec(SpecModel):
    """Scorer by assertions that each case has about a good output."""

    type: Literal["assertions"]
    field: Text = "assert"
    """Case field with the assertions."""
    input: Texts | None = None
    """Fields for judges and Python assertions; by default those that the model gets."""
    files: Texts = ()
    """Python files that assertions name. They are hidden from commands, and a resume compares
    them."""
    timeout_seconds: Seconds = TIMEOUT
    """Time limit for one answer of a judge and one call of a Python assertion."""


class Fault(NamedTuple):
    """Fault of an assertion."""

    loc: Loc
    message: str
    hint: str | None = None


def leaves(spec: AssertionSpec) -> Iterator[AssertionSpec]:
    """Single assertions of a set; the assertion itself if it is no set."""
    if spec.assert_ is None:
        yield spec
        return
    for inner in spec.assert_:
        yield from leaves(inner)


def faults_of(spec: AssertionSpec) -> Iterator[Fault]:
    """All faults of an assertion with valid keys."""
    if spec.base == "assert-set":
        yield from _set_faults(spec)
        return
    if spec.base not in KINDS:
        yield _unknown(spec)
        return
    kind = KINDS[spec.base]
    if spec.assert_ is not None:
        yield Fault(("assert",), "only an `assert-set` has assertions of its own")
    if spec.metric in RESERVED:
        yield Fault(("metric",), f"`{spec.metric}` is a measure of its own; name it otherwise")
    wrong = kind.value(spec.value)
    if wrong is not None:
        yield Fault(("value",), wrong)
    if kind.threshold == "needed" and spec.threshold is None:
        yield Fault(("threshold",), f"missing: `{spec.base}` is compared with it")
    if kind.threshold == "none" and spec.threshold is not None:
        yield Fault(("threshold",), f"`{spec.base}` holds or does not, and takes no threshold")
    if spec.config and spec.base != "python":
        yield Fault(("config",), "is for `python` alone")


def _set_faults(spec: AssertionSpec) -> Iterator[Fault]:
    if spec.type != "assert-set":
        yield Fault(("type",), "a set cannot be negated", "negate what is in it")
    if not spec.assert_:
        yield Fault(("assert",), "missing: a set is made of assertions")
    elif not sum(inner.weight for inner in spec.assert_):
        yield Fault(("assert",), "the weights add up to nothing")
    for number, inner in enumerate(spec.assert_ or ()):
        for loc, message, hint in faults_of(inner):
            yield Fault(("assert", number, *loc), message, hint)


def _unknown(spec: AssertionSpec) -> Fault:
    if spec.base in REFUSED:
        return Fault(("type",), f"`{spec.type}` is not supported", REFUSED[spec.base])
    known = [*KINDS, "assert-set"]
    near = get_close_matches(spec.base, known, n=1, cutoff=0.75)
    there = f"there are {', '.join(known)}, each also with `not-`"
    hint = f"did you mean `{near[0]}`?" if near else there
    return Fault(("type",), f"`{spec.type}` is no assertion that is known here", hint)


class _Kind(NamedTuple):
    value: Callable[[object], str | None]
    """Returns the fault of a value; None if there is none."""
    threshold: Literal["none", "needed", "may"] = "none"


def _text(value: object) -> str | None:
    if isinstance(value, str | int | float) and not isinstance(value, bool) and value != "":
        return None
    return f"{kind_of(value)}, where a text was expected"


def _texts(value: object) -> str | None:
    items: list[object] = []
    if isinstance(value, str):
        # a line with commas may stand for a list
        items = [part for part in (part.strip() for part in value.split(",")) if part]
    elif is_list(value):
        items = value
    if not items:
        return f"{kind_of(cast('object', value))}, where a list of texts was expected"
    return next((wrong for item in items if (wrong := _text(item)) is not None), None)


def _schema(value: object) -> str | None:
    if value is None or isinstance(value, dict | bool):
        return None
    return f"{kind_of(value)}, where a JSON schema was expected"


def _code(value: object) -> str | None:
    if isinstance(value, str) and value.strip():
        return None
    return f"{kind_of(value)}, where Python was expected"


def _words(value: object) -> str | None:
    known: dict[str, object] = {"min": value}
    if type(value) is dict:
        known = dict(cast("dict[str, object]", value))
    counts = all(isinstance(n, int) and not isinstance(n, bool) for n in known.values())
    if known and known.keys() <= {"min", "max"} and counts:
        return None
    told = kind_of(cast("object", value))
    return f"{told}, where a number of words, or `min` and `max`, was expected"


def _nothing(value: object) -> str | None:
    return None if value is None else "takes no value"


def _anything(value: object) -> str | None:
    return "missing" if value is None else None


KINDS: Mapping[str, _Kind] = {
    "equals": _Kind(_anything),
    "contains": _Kind(_text),
    "icontains": _Kind(_text),
    "contains-any": _Kind(_texts),
    "contains-all": _Kind(_texts),
    "icontains-any": _Kind(_texts),
    "icontains-all": _Kind(_texts),
    "starts-with": _Kind(_text),
    "regex": _Kind(_text),
    "is-json": _Kind(_schema),
    "contains-json": _Kind(_schema),
    "levenshtein": _Kind(_text, "may"),
    "word-count": _Kind(_words),
    "python": _Kind(_code, "may"),
    "latency": _Kind(_nothing, "needed"),
    "cost": _Kind(_nothing, "needed"),
    **dict.fromkeys(GRADED, _Kind(_text, "may")),
}
"""Assertion types, without the `not-` that each may have."""
