"""How a value inside a file is named: `model.temperature`, `tools[name=search].top_k`, `rows[0].w`.

A key that holds a dot, a bracket or a space stands in double quotes: `"my.key".value`.
"""

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Selector:
    """The one item of a list whose field has this value."""

    field: str
    value: str


Part = str | int | Selector
"""A key of a mapping, a place in a list, or the item of a list that a field tells apart."""

_QUOTED = r'"(?:[^"\\]|\\.)*"'
_PLAIN = r'[^\s.\[\]"=]+'
_PART = re.compile(
    rf"""
      (?P<dot>\.)?(?P<key>{_QUOTED}|{_PLAIN})
    | \[(?P<index>\d+)\]
    | \[(?P<field>{_QUOTED}|{_PLAIN})=(?P<value>{_QUOTED}|[^\]"]+)\]
    """,
    re.VERBOSE,
)


def parse_path(text: str) -> tuple[Part, ...] | str:
    """The parts of a path; a sentence where it cannot be read."""
    parts: list[Part] = []
    at = 0
    while at < len(text):
        match = _PART.match(text, at)
        # a dot stands between two keys, and nowhere else
        if match is None or (match["key"] and bool(match["dot"]) != bool(parts)):
            return f"`{text}` is no path (at `{text[at:]}`); write it as in `tools[name=x].top_k`"
        parts.append(_part(match))
        at = match.end()
    return tuple(parts) if parts else "the path is empty"


def show_path(parts: tuple[Part, ...]) -> str:
    """The path as a person would write it."""
    shown = ""
    for part in parts:
        match part:
            case str():
                word = part if re.fullmatch(_PLAIN, part) else _quote(part)
                shown += f".{word}" if shown else word
            case int():
                shown += f"[{part}]"
            case Selector():
                value = part.value if re.fullmatch(r'[^\]"]+', part.value) else _quote(part.value)
                shown += f"[{part.field}={value}]"
    return shown


def _part(match: re.Match[str]) -> Part:
    if match["key"]:
        return _unquote(match["key"])
    if match["index"]:
        return int(match["index"])
    return Selector(_unquote(match["field"]), _unquote(match["value"]))


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _unquote(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1], flags=re.DOTALL) if text.startswith('"') else text
