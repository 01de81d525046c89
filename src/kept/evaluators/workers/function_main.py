"""The far end of a python scorer: calls a user's function for every line it is sent.

A script that imports nothing of Kept, so that a user's modules never meet ours:
`python -P function_main.py FOLDER MODULE:FUNCTION`. The first line it writes says what the
function wants.
"""

import asyncio
import base64
import importlib
import inspect
import json
import os
import sys
import threading
import traceback
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

OFFERED = ("candidate", "case", "output", "files", "metrics")


def main(folder: str, target: str) -> None:
    """Say what the function wants, then answer until nobody asks any more."""
    # what the function prints must not end up among our answers
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    requests: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=listen, args=(requests,), daemon=True).start()
    sys.path.insert(0, folder)
    try:
        function = find(target)
        wanted = wants(target, function)
    except Problem as problem:
        tell(answers, {"problem": str(problem)})
        return
    tell(answers, {"wants": wanted})
    while True:
        tell(answers, answer(function, requests.get()))


def listen(requests: "SimpleQueue[bytes]") -> None:
    """Take requests as they come; when whoever sends them is gone, so are we, whatever we do."""
    for line in sys.stdin.buffer:
        requests.put(line)
    os._exit(0)


class Problem(Exception):
    """Why a function cannot be a scorer."""


def find(target: str) -> Callable[..., Any]:
    """The function that `module:function` names."""
    module_name, _, name = target.partition(":")
    try:
        value: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and f"{module_name}.".startswith(f"{error.name}."):
            raise Problem(f"there is no module `{error.name}`") from error
        raise Problem(f"`{module_name}` cannot be imported: {error}") from error
    except BaseException as error:
        raise Problem(f"`{module_name}` cannot be imported: {words(error)}") from error
    for part in name.split("."):
        if not hasattr(value, part):
            raise Problem(f"the module `{module_name}` has no `{name}`")
        value = getattr(value, part)
    if not callable(value):
        raise Problem(f"`{target}` is not a function")
    return value


def wants(target: str, function: Callable[..., Any]) -> list[str]:
    """Which of the arguments on offer a function takes."""
    wanted: list[str] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            return list(OFFERED)
        if parameter.name in OFFERED and parameter.kind is not parameter.POSITIONAL_ONLY:
            wanted.append(parameter.name)
        elif (
            parameter.default is parameter.empty and parameter.kind is not parameter.VAR_POSITIONAL
        ):
            offer = ", ".join(OFFERED)
            raise Problem(f"`{target}` wants `{parameter.name}`; a scorer is given {offer}")
    return wanted


def answer(function: Callable[..., Any], line: bytes) -> dict[str, object]:
    """What the function says of one request."""
    try:
        given = json.loads(line)
        if "files" in given:
            files = given["files"].items()
            given["files"] = {name: base64.b64decode(data) for name, data in files}
        result = function(**given)
        if inspect.isawaitable(result):
            result = asyncio.run(await_it(result))
        json.dumps(result, default=plain)
    except BaseException as error:  # noqa: BLE001 # the far end turns it into a value
        return {"error": words(error), "detail": traceback.format_exc()}
    return {"result": result}


async def await_it(result: Any) -> Any:  # noqa: ANN401 # the user's
    """A coroutine of what may be any awaitable."""
    return await result


def plain(value: Any) -> object:  # noqa: ANN401 # the user's
    """Numbers of other libraries as ours."""
    return value.item() if hasattr(value, "item") else float(value)


def words(error: BaseException) -> str:
    """An exception in one line."""
    return f"{type(error).__name__}: {error}".splitlines()[0]


def tell(answers: Any, value: dict[str, object]) -> None:  # noqa: ANN401 # a text file
    """One line."""
    answers.write(json.dumps(value, default=plain) + "\n")
    answers.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
