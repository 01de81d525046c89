"""A task as YAML that a person likes to read: a line a key, short things on one."""

import json
import re
from collections.abc import Mapping
from typing import Any, cast

_PLAIN = re.compile(r"[A-Za-z_./][\w./ -]*[\w./]|[A-Za-z_]")
_WORDS = {"true", "false", "null", "yes", "no", "on", "off", "y", "n", "none"}
WIDE = 96


def task_text(head: str, parts: Mapping[str, Any]) -> str:
    """A task with these parts, in their order; those that are empty are left out."""
    said = {key: value for key, value in parts.items() if value not in ({}, [])}
    return head + "".join(_block(key, value) for key, value in said.items())


def _block(key: str, value: object, indent: str = "") -> str:
    """A key with its value, on one line where it fits."""
    line = f"{indent}{key}: {_flow(value)}"
    if len(line) <= WIDE or not isinstance(value, dict | list):
        return line + "\n"
    if isinstance(value, list):
        rows = (f"{indent}  - {_flow(item)}\n" for item in cast("list[object]", value))
        return f"{indent}{key}:\n" + "".join(rows)
    inner = cast("dict[str, object]", value).items()
    return f"{indent}{key}:\n" + "".join(_block(name, one, f"{indent}  ") for name, one in inner)


def _flow(value: object) -> str:
    if isinstance(value, dict):
        inner = cast("dict[str, object]", value).items()
        return "{" + ", ".join(f"{name}: {_flow(one)}" for name, one in inner) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_flow(item) for item in cast("list[object]", value)) + "]"
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    return json.dumps(value, ensure_ascii=False)
