"""Worker for function tools (`sandbox/worker_main.py`).

At its start it sends the description and the parameters of the function, read from its signature
and its docstring.
"""

import dataclasses
import enum
import importlib.util
import inspect
import json
import re
import sys
import types
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

NAMES = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
MANY = (list, tuple, set, frozenset)


def prepare(
    folder: str, file: str, name: str, most: str
) -> tuple[dict[str, object], Callable[[Any], Any], Callable[[Any], Any]]:
    """Import a function of a file, and describe its parameters."""
    sys.path[:0] = list(dict.fromkeys((folder, str(Path(file).parent))))
    function = resolve(file, name)
    # first paragraph of the docstring, before the list of arguments
    text = inspect.getdoc(function) or ""
    text = re.split(r"\n\s*\n|\n(?=\s*(?:Args|Arguments|Parameters):|:param)", text)[0].strip()
    about: dict[str, object] = {"description": text, "parameters": parameters(function)}
    return about, lambda given: function(**given), lambda result: shown(result, int(most))


def resolve(file: str, name: str) -> Callable[..., Any]:
    """Import the named function of a file; raises `ValueError`."""
    stem = Path(file).stem
    spec = importlib.util.spec_from_file_location(stem, file)
    if spec is None or spec.loader is None:
        raise ValueError(f"`{Path(file).name}` is no Python file")
    value: Any = importlib.util.module_from_spec(spec)
    sys.modules[stem] = value
    try:
        spec.loader.exec_module(value)
    except FileNotFoundError as error:
        if error.filename == file:
            raise ValueError("there is no such file") from error
        raise ValueError(f"it cannot be imported: {words(error)}") from error
    except BaseException as error:
        raise ValueError(f"it cannot be imported: {words(error)}") from error
    for part in name.split("."):
        if not hasattr(value, part):
            raise ValueError(f"it has no `{name}`")
        value = getattr(value, part)
    if not callable(value):
        raise ValueError(f"`{name}` is not a function")
    return value


def parameters(function: Callable[..., Any]) -> dict[str, Any]:
    """JSON schema of a function's parameters."""
    try:
        hints = typing.get_type_hints(function)
    except Exception:  # noqa: BLE001 # names that are nowhere to be found: the rest still counts
        hints = {}
    about = described(inspect.getdoc(function) or "")
    properties: dict[str, Any] = {}
    required: list[str] = []
    others = False
    for one in inspect.signature(function).parameters.values():
        if one.kind is one.VAR_KEYWORD:
            others = True
            continue
        if one.kind is one.VAR_POSITIONAL:
            continue
        if one.kind is one.POSITIONAL_ONLY:
            raise ValueError(
                f"it takes `{one.name}` by its place alone, and tools are called by name"
            )
        schema = schema_of(hints.get(one.name, Any))
        if one.name in about:
            schema["description"] = about[one.name]
        if one.default is one.empty:
            required.append(one.name)
        elif isinstance(one.default, str | int | float | bool):
            schema["default"] = one.default
        properties[one.name] = schema
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": others,
    }


def schema_of(hint: Any) -> dict[str, Any]:  # noqa: ANN401 # an annotation
    """JSON schema of an annotation; empty (anything) if there is none for it."""
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return schema_of(inside[0])
    if origin in (typing.Union, types.UnionType):
        some = [schema_of(one) for one in inside]
        return {"anyOf": some} if all(some) else {}
    if origin is typing.Literal:
        return {"enum": list(inside)}
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return {}
    if hint in NAMES:
        return {"type": NAMES[hint]}
    if hint in MANY or origin in MANY or getattr(origin, "__name__", "") == "Sequence":
        of = schema_of(inside[0]) if inside else {}
        return {"type": "array", "items": of} if of else {"type": "array"}
    if hint is dict or origin is dict or getattr(origin, "__name__", "") == "Mapping":
        return {"type": "object"}
    return {}


def described(text: str) -> dict[str, str]:
    """Descriptions of arguments in a docstring of Google's or Sphinx's style."""
    found = dict[str, str](re.findall(r"^\s*:param (?:[^:]* )?(\w+): *(.+)$", text, re.MULTILINE))
    _, _, args = text.partition("Args:\n") if "Args:\n" in text else text.partition("Arguments:\n")
    deep = None
    last = ""
    for line in args.splitlines():
        if not line.strip():
            break
        indent = len(line) - len(line.lstrip())
        deep = indent if deep is None else deep
        if indent < deep:
            break
        match = re.match(r"\s*\*{0,2}(\w+) *(?:\([^)]*\))?: *(.*)$", line)
        if match and indent == deep:
            last = match[1]
            found[last] = match[2]
        elif last:
            found[last] = f"{found[last]} {line.strip()}".strip()
    return found


def shown(result: Any, most: int) -> str:  # noqa: ANN401 # the user's
    """Text of a result for the model, cut to `most` characters."""
    text = result if isinstance(result, str) else json.dumps(result, default=plain)
    if len(text) > most:
        return f"{text[:most]}\n[{len(text) - most:,} more characters were left out]"
    return text


def plain(value: Any) -> object:  # noqa: ANN401 # the user's
    """Convert a value that JSON does not know to one that it does."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    for name in ("model_dump", "tolist", "item"):
        if callable(getattr(value, name, None)):
            return getattr(value, name)()
    if isinstance(value, set | frozenset | types.GeneratorType):
        return list(typing.cast("set[Any]", value))
    return str(value)


def words(error: BaseException) -> str:
    """Type and message of an exception."""
    said = str(error)
    return f"{type(error).__name__}: {said}" if said else type(error).__name__
