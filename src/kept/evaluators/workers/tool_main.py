"""The far end of a function tool: calls a user's function for every line it is sent.

A script that imports nothing of Kept, so that a user's modules never meet ours:
`python -P tool_main.py FOLDER FILE FUNCTION MOST`. The first line it writes says what the
function takes, as its signature and its docstring tell.
"""

import asyncio
import dataclasses
import enum
import importlib.util
import inspect
import json
import os
import re
import sys
import threading
import types
import typing
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any

NAMES = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
MANY = (list, tuple, set, frozenset)


def main(folder: str, file: str, name: str, most: str) -> None:
    """Say what the function takes, then answer until nobody asks any more."""
    # what the function prints must not end up among our answers
    answers = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)
    # nor must it, or a program that it starts, take our requests for something to read
    asked = os.fdopen(os.dup(0), "rb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    requests: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=listen, args=(asked, requests), daemon=True).start()
    sys.path[:0] = list(dict.fromkeys((folder, str(Path(file).parent))))
    try:
        function = resolve(file, name)
        # what the docstring says before it goes through the arguments
        text = inspect.getdoc(function) or ""
        text = re.split(r"\n\s*\n|\n(?=\s*(?:Args|Arguments|Parameters):|:param)", text)[0].strip()
        told: dict[str, object] = {"description": text}
        told["parameters"] = parameters(function)
    except Problem as problem:
        tell(answers, {"problem": str(problem)})
        return
    tell(answers, told)
    # one loop for all calls: what a coroutine keeps between them belongs to its loop
    with asyncio.Runner() as runner:
        while True:
            tell(answers, answer(function, requests.get(), runner, int(most)))


def listen(asked: Any, requests: "SimpleQueue[bytes]") -> None:  # noqa: ANN401 # a file
    """Take requests as they come; when whoever sends them is gone, so are we, whatever we do."""
    for line in asked:
        requests.put(line)
    os._exit(0)


class Problem(Exception):
    """Why a function cannot be a tool."""


def resolve(file: str, name: str) -> Callable[..., Any]:
    """The function of that name in a file."""
    stem = Path(file).stem
    spec = importlib.util.spec_from_file_location(stem, file)
    if spec is None or spec.loader is None:
        raise Problem(f"`{Path(file).name}` is no Python file")
    value: Any = importlib.util.module_from_spec(spec)
    sys.modules[stem] = value
    try:
        spec.loader.exec_module(value)
    except FileNotFoundError as error:
        if error.filename == file:
            raise Problem("there is no such file") from error
        raise Problem(f"it cannot be imported: {words(error)}") from error
    except BaseException as error:
        raise Problem(f"it cannot be imported: {words(error)}") from error
    for part in name.split("."):
        if not hasattr(value, part):
            raise Problem(f"it has no `{name}`")
        value = getattr(value, part)
    if not callable(value):
        raise Problem(f"`{name}` is not a function")
    return value


def parameters(function: Callable[..., Any]) -> dict[str, Any]:
    """A JSON schema of what a function takes."""
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
            raise Problem(f"it takes `{one.name}` by its place alone, and tools are called by name")
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
    """A JSON schema of an annotation; empty, which is anything, for what has none."""
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
    """What a docstring says of each argument, in Google's way of writing or in Sphinx's."""
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


def answer(
    function: Callable[..., Any], line: bytes, runner: "asyncio.Runner", most: int
) -> dict[str, object]:
    """What the function says of one request."""
    try:
        result = function(**json.loads(line))
        if inspect.isawaitable(result):
            result = runner.run(await_it(result))
        text = result if isinstance(result, str) else json.dumps(result, default=plain)
    except BaseException as error:  # noqa: BLE001 # the near end turns it into a value
        return {"error": words(error)[:most]}
    if len(text) > most:
        left = len(text) - most
        return {"result": f"{text[:most]}\n[{left:,} more characters were left out]"}
    return {"result": text}


async def await_it(result: Any) -> Any:  # noqa: ANN401 # the user's
    """A coroutine of what may be any awaitable."""
    return await result


def plain(value: Any) -> object:  # noqa: ANN401 # the user's
    """What JSON has no word for, in words that it has."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    for name in ("model_dump", "tolist", "item"):
        if callable(getattr(value, name, None)):
            return getattr(value, name)()
    if isinstance(value, set | frozenset | types.GeneratorType):
        return list(typing.cast("set[Any]", value))
    return str(value)


def words(error: BaseException) -> str:
    """An exception, by its type and what it says."""
    said = str(error)
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def tell(answers: Any, value: dict[str, object]) -> None:  # noqa: ANN401 # a text file
    """One line."""
    answers.write(json.dumps(value, default=str) + "\n")
    answers.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
