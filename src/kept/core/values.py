"""Where a named value stands inside a text.

A `Locator` answers with the span of the value, so that setting it changes those characters and
nothing else: comments, order and spacing stay. The one here knows `key = value` and `key: value`
lines; recipes that edit nested formats bring their own.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Value = str | int | float | bool


@dataclass(frozen=True, slots=True)
class Span:
    """A value found: where it stands, and how a new one is to be written there."""

    start: int
    end: int
    render: Callable[[Value], str]


@dataclass(frozen=True, slots=True)
class NoSpan:
    """A value not found, and why."""

    why: Literal["target missing", "ambiguous"]
    detail: str


Locator = Callable[[str, str, str], Span | NoSpan]
"""(path, text, key) to the span of the key's value."""

# Groups: key, the separator with its spacing, the value. A comment needs a space before its `#`,
# as in YAML, so that `color = #fff` keeps its value.
_LINE = re.compile(
    r"""^[ \t]*(?P<key>[\w.\-]+)[ \t]*[=:][ \t]*
        (?P<value>"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|[^\s#\n](?:[^#\n]|(?<=\S)\#)*?|)
        [ \t]*(?:(?<=\s)\#[^\n]*)?\r?$""",
    re.MULTILINE | re.VERBOSE,
)


def locate_line_value(path: str, text: str, key: str) -> Span | NoSpan:
    """Find `key = value` or `key: value`, standing on a line of its own, exactly once."""
    found = [match for match in _LINE.finditer(text) if match["key"] == key]
    if not found:
        return NoSpan("target missing", f"no line `{key} = …` or `{key}: …` in {path}")
    if len(found) > 1:
        lines = ", ".join(str(text.count("\n", 0, match.start()) + 1) for match in found)
        return NoSpan("ambiguous", f"`{key}` stands on lines {lines} of {path}")
    start, end = found[0].span("value")
    quote = text[start] if start < end and text[start] in "\"'" else ""
    style = "title" if path.endswith(".py") else "lower"
    return Span(start, end, lambda value: render_value(value, quote=quote, booleans=style))


def render_value(
    value: Value, *, quote: str = "", booleans: Literal["title", "lower"] = "lower"
) -> str:
    """Write a value as the text around it would."""
    if isinstance(value, bool):
        return str(value) if booleans == "title" else str(value).lower()
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"') if quote == '"' else value
        return f"{quote}{escaped}{quote}"
    return repr(value)
