"""Fields of a case that are its input, and those that hold the expected output."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from kept.core.case import Case, Cases

ANSWER_NAMES = ("expected", "expected_output", "answer", "label", "target", "ideal", "gold")
"""Field names that hold the expected output in any data set, most common first."""

POSSIBLE_ANSWER_NAMES = (
    *ANSWER_NAMES[:5],
    "output",
    *ANSWER_NAMES[5:],
    *("completion", "response", "reference", "category", "class"),
)
"""`ANSWER_NAMES`, and names that hold it where only one field can be meant."""


def answer_field(names: Iterable[str], known: Sequence[str] = ANSWER_NAMES) -> str | None:
    """Find the field that holds the expected output, whatever its case; None where none does."""
    by_lower = {name.lower(): name for name in reversed([*names])}
    return next((by_lower[name] for name in known if name in by_lower), None)


@dataclass(frozen=True, slots=True)
class Labels:
    """Fields with the input and the expected output of a case."""

    inputs: tuple[str, ...] = ()
    """Fields that the runner is given; empty where that is not known."""
    expected: str = ""
    """The field with the expected output; empty where there is none."""
    assertions: str = ""
    """The field with assertions in promptfoo's format; empty where there is none."""
    shown: bool = True
    """True if proposers see the expected output of train cases."""

    def input_of(self, case: Case) -> str:
        """Text of the input: the named fields, or all that hold no answer."""
        fields = _fields(case)
        if not fields:
            return _text(case.data) if case.data is not None else ""
        answers = ("id", self.expected, self.assertions)
        names = self.inputs or tuple(name for name in fields if name not in answers)
        given = {name: fields[name] for name in names if name in fields}
        return _text(next(iter(given.values())) if len(given) == 1 else given)

    def expected_of(self, case: Case) -> str:
        """Text of the expected output; empty where the case has none."""
        fields = _fields(case)
        parts: list[str] = []
        if self.expected and fields.get(self.expected) is not None:
            parts.append(_text(fields[self.expected]))
        if self.assertions:
            parts += assertion_texts(fields.get(self.assertions))
        return "; ".join(parts)


def labels_of(cases: Cases, inputs: tuple[str, ...] = ()) -> Labels:
    """Labels of cases without a description, by the names of their fields."""
    first = next(iter(cases.by_id.values()), None)
    names = [name for name in (_fields(first) if first else ()) if name not in inputs]
    return Labels(inputs, answer_field(names) or "")


def assertion_texts(given: object) -> Iterator[str]:
    """Each assertion of a case as `type: value`, without sets around them."""
    rows = cast("list[object]", given) if isinstance(given, list) else []
    for row in rows:
        if not isinstance(row, dict):
            continue
        one = cast("dict[str, Any]", row)
        if one.get("assert") is not None:
            yield from assertion_texts(one["assert"])
            continue
        value, threshold = one.get("value"), one.get("threshold")
        limit = f" (threshold {threshold:g})" if isinstance(threshold, int | float) else ""
        kind = str(one.get("type", "")) + limit
        yield kind if value is None else f"{kind}: {_text(value)}"


def _fields(case: Case) -> Mapping[str, object]:
    data = case.data
    return cast("dict[str, object]", data) if isinstance(data, dict) else {}


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
