"""`KEY = value` and `KEY: value` lines: .env, .ini, Python constants, whatever has no tree.

Such files have no types, so what reads as a number is one, in quotes or not.
"""

import ast

from kept.core.values import NoSpan, Value, locate_line_value, render_value
from kept.spec.locate.nodes import Scalar


def find_line(path: str, text: str, key: str) -> Scalar | NoSpan:
    """The value of the one line that sets a key."""
    span = locate_line_value(path, text, key)
    if isinstance(span, NoSpan):
        return span
    raw = text[span.start : span.end]
    if path.endswith(".py"):
        return Scalar(span.start, span.end, _constant(raw), span.render)
    quote = raw[:1] if raw[:1] in ('"', "'") else ""
    bare = raw[1:-1] if quote else raw

    def render(value: Value) -> str:
        if quote and not isinstance(value, str):
            return quote + render_value(value) + quote
        return span.render(value)

    return Scalar(span.start, span.end, _typed(bare), render)


def _constant(raw: str) -> object:
    try:
        return ast.literal_eval(raw)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None


def _typed(raw: str) -> object:
    for kind in (int, float):
        try:
            return kind(raw)
        except ValueError:
            continue
    return {"true": True, "false": False}.get(raw.lower(), raw)
