"""Journalled, timed and bounded tool calls, and JSON schemas of tool arguments.

A schema in the spec overrides what the signature of a function gives.
"""

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from kept.core.llm import ToolAnswer
from kept.core.ports import Scope
from kept.core.rollout import Failure
from kept.models.structured_output import problem_with

_NAMES = {
    "str": "string",
    "int": "integer",
    "float": "number",
    "double": "number",
    "bool": "boolean",
    "list": "array",
    "dict": "object",
}
"""Python type names that users write in place of JSON types."""


def merged(
    said: Mapping[str, Mapping[str, object]], told: Mapping[str, Any]
) -> dict[str, object] | str:
    """Schema of the spec merged with the signature, or a text that says what is wrong.

    Without `required` or `default` in the spec, a parameter is required if the function cannot be
    called without it.
    """
    properties: dict[str, object] = {}
    required: list[str] = []
    takes: Mapping[str, Any] = told["properties"]
    for name, about in said.items():
        if name not in takes and not told["additionalProperties"]:
            known = ", ".join(takes) or "nothing"
            return f"it does not take `{name}`; it takes {known}"
        properties[name] = {**takes.get(name, {}), **_schema(about)}
        if about.get("required", name in told["required"] and "default" not in about):
            required.append(name)
    for name in takes:
        if said and name not in said and name in told["required"]:
            return f"it needs `{name}`, of which its `parameters` say nothing"
        if not said:
            properties[name] = takes[name]
            required += [name] if name in told["required"] else []
    schema: dict[str, object] = {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": bool(told["additionalProperties"]) and not said,
    }
    return unsound(schema) or schema


def plain(said: Mapping[str, Mapping[str, object]], names: tuple[str, ...]) -> dict[str, object]:
    """Schema of parameters by name; a parameter without one may be any text."""
    properties = {name: {"type": "string", **_schema(said.get(name, {}))} for name in names}
    optional = [
        n
        for n in names
        if "default" in (about := said.get(n, {})) or about.get("required") is False
    ]
    return {
        "type": "object",
        "properties": properties,
        "required": [name for name in names if name not in optional],
        "additionalProperties": False,
    }


def _schema(about: Mapping[str, object]) -> dict[str, object]:
    schema = {
        key: value
        for key, value in about.items()
        if not isinstance(value, bool) or key != "required"
    }
    if isinstance(kind := schema.get("type"), str):
        schema["type"] = _NAMES.get(kind, kind)
    return schema


def unsound(schema: Mapping[str, object]) -> str | None:
    """Text that says why a schema is invalid; None if it is valid."""
    try:
        problem_with({}, schema)
    except ValueError as error:
        return f"its `parameters` are no JSON schema: {str(error).splitlines()[0]}"
    return None


MOST_TEXT = 190_000
"""Maximum number of characters of a tool's answer; a model would not get more anyway."""


Answer = TypeVar("Answer", bound=ToolAnswer)


async def journalled(
    scope: Scope,
    request: Mapping[str, object],
    do: Callable[[], Awaitable[Answer | Failure]],
    kind: type[Answer] = ToolAnswer,
) -> Answer | Failure:
    """Run and time a tool call; a resume returns the journalled answer."""

    async def timed() -> Answer | Failure:
        began = time.monotonic()
        answer = await do()
        if isinstance(answer, Failure):
            return answer
        return replace(answer, seconds=round(time.monotonic() - began, 4))

    return await scope.call(request, kind, timed, 0.0)


def cut(text: str) -> str:
    """Cut a text to the limit and add how much was left out."""
    if len(text) <= MOST_TEXT:
        return text
    return f"{text[:MOST_TEXT]}\n[{len(text) - MOST_TEXT:,} more characters were left out]"
