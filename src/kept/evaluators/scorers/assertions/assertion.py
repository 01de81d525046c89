"""What a case asserts, and what becomes of it.

Sums up as promptfoo does: a test passes when all of its assertions do, or, where there is a
threshold, when their weighted mean reaches it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

SET = "assert-set"


@dataclass(frozen=True, slots=True)
class Assertion:
    """One thing that ought to hold of an output."""

    type: str
    """Without `not-`."""
    value: Any = None
    threshold: float | None = None
    weight: float = 1.0
    metric: str | None = None
    negated: bool = False
    config: Mapping[str, object] = field(default_factory=dict[str, object])
    parts: tuple["Assertion", ...] = ()
    """Of a set."""

    @property
    def name(self) -> str:
        """As a case spells it."""
        return f"not-{self.type}" if self.negated else self.type


class Grade(NamedTuple):
    """What an assertion came to."""

    passed: bool
    score: float
    reason: str = ""
    """Why it did not pass; of one that did, what a judge or a function said."""


class Total(NamedTuple):
    """What several came to."""

    grade: Grade
    metrics: Mapping[str, float]
    """Named ones: the weighted mean of what counts towards each."""
    told: tuple[tuple[Assertion, Grade], ...]
    """Each assertion that is no set, in its order."""


def read_assertions(given: object) -> tuple[Assertion, ...]:
    """Those of a case, which were looked at when the task was read."""
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
    """Those that are no sets, each by its place."""
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
    """What these come to, with the grade of each that is no set by its place."""
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
            weight = one.weight or 1.0
            row[:] = row[0] + weight * value, row[1] + weight
        # what weighs nothing measures, and decides nothing
        if not grade.passed and one.weight:
            failed = failed or grade.reason or one.name
    mean = score / whole if whole else 0.0
    passed, reason = not failed, failed
    if threshold is not None:
        passed = mean >= threshold
        reason = "" if passed else f"{mean:.2f} together, {threshold:g} needed"
    metrics = {name: value / weight for name, (value, weight) in sums.items()}
    return Total(Grade(passed, mean, reason), metrics, tuple(told))
