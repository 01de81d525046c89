"""Loop of a worker process: one line of JSON in, one line out, until stdin ends.

A script that imports nothing of Kept, so that a user's modules never meet ours:
`python -P worker_main.py HANDLER ARGUMENT...`.

HANDLER is a Python file with a function `prepare(*arguments)`. It returns what is reported once at
the start, and two functions. One answers a request and may return an awaitable; the other turns the
result into JSON. If `prepare` raises `ValueError`, its message says why the worker cannot serve.

Answers are `{"result": ...}`, or `{"error": ..., "detail": ...}` for an exception.
"""

import importlib.util
import json
import os
import sys
import threading
import traceback
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TextIO

_MAX_ERROR = 1_000_000
"""Maximum characters of an exception's message."""


def main(handler: str, *arguments: str) -> None:
    """Prepare the handler, then answer until stdin ends."""
    # a handler's own output must not get among the answers
    answers = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)
    # a handler, or a program that it starts, must not read requests from stdin
    asked = os.fdopen(os.dup(0), "rb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    requests: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_listen, args=(asked, requests), daemon=True).start()
    try:
        about, call, finish = _load(handler).prepare(*arguments)
    except ValueError as error:
        _write(answers, json.dumps({"problem": str(error)}))
        return
    _write(answers, json.dumps(about))
    run = _Runner()
    while True:
        _write(answers, _answer(call, finish, run, requests.get()))


def _load(path: str) -> Any:  # noqa: ANN401 # a module
    """Load a handler under a name that no module of a user has."""
    spec = importlib.util.spec_from_file_location("_kept_handler", path)
    assert spec is not None and spec.loader is not None
    module = sys.modules["_kept_handler"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _listen(asked: Any, requests: "SimpleQueue[bytes]") -> None:  # noqa: ANN401 # a file
    """Queue requests; exit when the sending process ends, whatever runs here."""
    for line in asked:
        requests.put(line)
    os._exit(0)


class _Runner:
    """One event loop for all calls: objects that a coroutine keeps belong to their loop."""

    def __init__(self) -> None:
        self._runner: Any = None

    def __call__(self, awaitable: Any) -> Any:  # noqa: ANN401 # the user's
        # imported here: most workers await nothing
        import asyncio

        async def wait() -> Any:  # noqa: ANN401 # the user's
            return await awaitable

        if self._runner is None:
            self._runner = asyncio.Runner()
        return self._runner.run(wait())


def _answer(
    call: Callable[[Any], Any], finish: Callable[[Any], Any], run: _Runner, line: bytes
) -> str:
    try:
        result = call(json.loads(line))
        if hasattr(result, "__await__"):
            result = run(result)
        return json.dumps({"result": finish(result)}, default=_plain)
    except BaseException as error:  # noqa: BLE001 # sent to the caller as a value
        said = str(error)[:_MAX_ERROR]
        words = f"{type(error).__name__}: {said}" if said else type(error).__name__
        return json.dumps({"error": words, "detail": traceback.format_exc()[-_MAX_ERROR:]})


def _plain(value: Any) -> object:  # noqa: ANN401 # the user's
    """Convert numbers of other libraries to Python's."""
    return value.item() if hasattr(value, "item") else float(value)


def _write(answers: TextIO, line: str) -> None:
    answers.write(f"{line}\n")
    answers.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
