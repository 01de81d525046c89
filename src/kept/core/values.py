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

# A comment needs a space before its `#`, as in YAML. In Python a name may carry its type, and an
# argument ends in a comma.
_VALUE = r"""(?P<value>"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|[^\s#](?:[^#\n]|(?<=\S)\#)*?|)"""
_REST = r"[ \t]*(?:(?<=\s)\#[^\n]*)?\r?$"
_LINE = re.compile(rf"^[ \t]*(?P<key>[\w.\-]+)[ \t]*[=:][ \t]*{_VALUE}{_REST}", re.MULTILINE)
_PYTHON_LINE = re.compile(
    rf"^[ \t]*(?P<key>\w+)[ \t]*(?::[^=#\n]+)?=(?!=)[ \t]*{_VALUE},?{_REST}", re.MULTILINE
)


def locate_line_value(path: str, text: str, key: str) -> Span | NoSpan:
    """Find `key = value` or `key: value`, standing on a line of its own, exactly once."""
    python = path.endswith(".py")
    pattern = _PYTHON_LINE if python else _LINE
    found = [match for match in pattern.finditer(text) if match["key"] == key]
    if not found:
        return NoSpan("target missing", f"no line `{key} = …` or `{key}: …` in {path}")
    if len(found) > 1:
        lines = ", ".join(str(text.count("\n", 0, match.start()) + 1) for match in found)
        return NoSpan("ambiguous", f"`{key}` stands on lines {lines} of {path}")
    start, end = found[0].span("value")
    quote = text[start] if start < end and text[start] in "\"'" else ""
    # an empty value brings the space that keeps it from its colon and from the comment behind it
    before = " " if start == end and text[start - 1] == ":" else ""
    after = " " if start == end and text[start : start + 1] == "#" else ""
    style = "title" if python else "lower"

    def render(value: Value) -> str:
        return before + render_value(value, quote=quote, booleans=style) + after

    return Span(start, end, render)


def render_value(
    value: Value, *, quote: str = "", booleans: Literal["title", "lower"] = "lower"
) -> str:
    """Write a value as the text around it would."""
    if isinstance(value, bool):
        return str(value) if booleans == "title" else str(value).lower()
    if isinstance(value, str):
        return _render_text(value, quote)
    shown = repr(value)
    # YAML 1.1 reads `1e-05` as a word, and `1.0e-05` as the number it is
    return shown.replace("e", ".0e") if "e" in shown and "." not in shown else shown


def _render_text(value: str, quote: str) -> str:
    """A text that stays on its line and reads back as it is, where quotes can do that."""
    plain = value == value.strip() and not value.startswith(("#", '"', "'")) and " #" not in value
    if quote == "'" and "'" not in value and "\\" not in value and value.isprintable():
        return f"'{value}'"
    if quote == "" and plain and not any(c in value for c in "\r\n"):
        return value
    for raw, escaped in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t")):
        value = value.replace(raw, escaped)
    return f'"{value}"'
