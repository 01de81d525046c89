"""What happened inside a rollout, as a conversation."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from kept.core.exchange import CASE, EXPECTED, FAILURE, FINAL
from kept.core.rollout import TraceItem

LONG = 20_000
"""Characters of one item that are shown; the raw trace has all of it."""

_TITLES = {
    "system": "instructions",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    CASE: "input of the case",
    EXPECTED: "expected",
    FAILURE: "failed",
    "metric": "measured",
    "tools": "tools expected",
    "stdout": "printed",
    "stderr": "printed as errors",
    "info": "note",
}


@dataclass(frozen=True, slots=True)
class Use:
    """A tool that an assistant asked for."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Said:
    """One item of a conversation."""

    role: str
    """For its looks: one of the known roles, else `other`."""
    title: str
    text: str
    uses: tuple[Use, ...] = ()
    wrong: bool = False
    final: bool = False
    details: str = ""
    """Whatever else is known of it, as JSON; empty where nothing is."""
    cut: int = 0
    """Characters left out."""


def conversation(trace: Sequence[TraceItem]) -> list[Said]:
    """A trace for people."""
    return [_said(item) for item in trace]


def _said(item: TraceItem) -> Said:
    data = cast("Mapping[str, Any]", item.data)
    role = item.role if item.role in _TITLES else "other"
    title = _TITLES.get(item.role, item.role)
    if item.role == "tool":
        title = f"tool {data.get('name', '')}".strip()
    if item.role == "metric":
        title = _measure(data)
    shown = ("tool_calls", "name", "wrong", FINAL)
    rest = {name: value for name, value in data.items() if name not in shown}
    return Said(
        role=role,
        title=title,
        text=item.text[:LONG],
        uses=_uses(data.get("tool_calls")),
        wrong=bool(data.get("wrong")) or item.role == FAILURE or data.get("passed") is False,
        final=bool(data.get(FINAL)),
        details=json.dumps(rest, indent=1, ensure_ascii=False, default=str) if rest else "",
        cut=max(0, len(item.text) - LONG),
    )


def _uses(calls: object) -> tuple[Use, ...]:
    if not isinstance(calls, list):
        return ()
    found: list[Use] = []
    for call in cast("list[object]", calls):
        if isinstance(call, Mapping):
            given = cast("Mapping[str, object]", call)
            arguments = given.get("arguments", "")
            words = arguments if isinstance(arguments, str) else json.dumps(arguments, default=str)
            found.append(Use(str(given.get("name", "")), words))
    return tuple(found)


def _measure(data: Mapping[str, Any]) -> str:
    score = data.get("score")
    value = f" {score:.3g}" if isinstance(score, int | float) else " not measured"
    return f"measured {data.get('metric', '')}{value}"
