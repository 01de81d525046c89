"""The far end of a bounded call: `python -P bounded_main.py SOURCE MODULE:FUNCTION`.

Calls the function with the arguments of every line that it reads, and writes a line for each.
"""

import importlib
import json
import math
import os
import resource
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

MEMORY = 2 * 1024**3
"""Bytes of address space that a call may use."""


def main(source: str, target: str) -> None:
    """Say that the function is there, then answer until nobody asks any more."""
    # what a library prints must not end up among our answers
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    requests: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_listen, args=(requests,), daemon=True).start()
    sys.path.insert(0, source)
    module, _, name = target.partition(":")
    function = getattr(importlib.import_module(module), name)
    answers.write("{}\n")
    answers.flush()
    while True:
        answers.write(json.dumps(answer(function, requests.get())) + "\n")
        answers.flush()


def answer(function: Callable[..., Any], line: bytes) -> dict[str, object]:
    """What the function says of one request, in bounded time and memory."""
    try:
        asked = json.loads(line)
        # whoever asked may be gone, and C code at work lets no other thread notice that
        _limit(resource.RLIMIT_CPU, math.ceil(time.process_time() + asked["seconds"]) + 1)
        _limit(resource.RLIMIT_AS, MEMORY)
        return {"result": function(**asked["given"])}
    except BaseException as error:  # noqa: BLE001 # the far end turns it into a value
        words = f"{type(error).__name__}: {error}".splitlines()[0]
        return {"error": words, "detail": traceback.format_exc()}


def _listen(requests: "SimpleQueue[bytes]") -> None:
    """Take requests as they come; end with whoever sends them."""
    for line in sys.stdin.buffer:
        requests.put(line)
    os._exit(0)


def _limit(name: int, most: int) -> None:
    # macOS has no limit on address space, and one that is lower already stays
    with suppress(ValueError, OSError):
        resource.setrlimit(name, (most, resource.getrlimit(name)[1]))


if __name__ == "__main__":
    main(*sys.argv[1:])
