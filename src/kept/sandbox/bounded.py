"""Calls of our own functions in processes that can be ended.

For work on foreign input that has no bound of its own, or loses it in C code: regular expressions,
parsers of office files and web pages, JSON schemas. A process is used again until it takes too long
or ends by itself.
"""

import atexit
import json
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kept.sandbox.bounded_main import MEMORY
from kept.sandbox.worker import Child, ChildEnded
from kept.settings import child_environment, processors

START_SECONDS = 60.0
"""For starting a process and importing the function."""

_FAR = Path(__file__).with_name("bounded_main.py")
_SOURCE = Path(__file__).parents[2]


class CallRaised(Exception):
    """The function raised something in its process."""

    def __init__(self, message: str, detail: str) -> None:
        super().__init__(message)
        self.detail = detail


class BoundedCalls:
    """Calls one function, named `module:function`, with JSON for arguments and result."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._idle: list[Child] = []
        self._turns = threading.BoundedSemaphore(processors())
        atexit.register(self.close)

    async def prepare(self) -> None:
        """Have a process waiting, so that the next call does not take the time to start one."""
        if not self._idle:
            self._idle.append(await self._start())

    async def ask(self, given: Mapping[str, object], seconds: float) -> Any:  # noqa: ANN401 # any JSON
        """What the function returns; the caller limits how many calls are made at once.

        Raises `TimeoutError`, `MemoryError` beyond `MEMORY`, `CallRaised`, `OSError` where no
        process can be started and `ChildEnded` where it ended.
        """
        child = self._idle.pop() if self._idle else await self._start()
        answer = await child.ask(_line(given, seconds), seconds)
        self._idle.append(child)
        return _result(answer)

    def call(self, given: Mapping[str, object], seconds: float) -> Any:  # noqa: ANN401 # any JSON
        """The same without an event loop; waits while as many calls are at work as processors."""
        with self._turns:
            child = self._idle.pop() if self._idle else self._start_blocking()
            answer = child.ask_blocking(_line(given, seconds), seconds)
            self._idle.append(child)
        return _result(answer)

    def close(self) -> None:
        """End the processes that wait."""
        while self._idle:
            self._idle.pop().end()

    async def _start(self) -> Child:
        child = self._process()
        try:
            await child.ask(None, START_SECONDS)
        except TimeoutError as error:
            raise ChildEnded("does not begin") from error
        return child

    def _start_blocking(self) -> Child:
        child = self._process()
        try:
            child.ask_blocking(None, START_SECONDS)
        except TimeoutError as error:
            raise ChildEnded("does not begin") from error
        return child

    def _process(self) -> Child:
        argv = [sys.executable, "-B", "-P", str(_FAR), str(_SOURCE), self._target]
        return Child(argv, _SOURCE, child_environment({}))


def _line(given: Mapping[str, object], seconds: float) -> bytes:
    return json.dumps({"given": given, "seconds": seconds}).encode() + b"\n"


def _result(answer: bytes) -> Any:  # noqa: ANN401 # any JSON
    reply: dict[str, Any] = json.loads(answer)
    if "result" in reply:
        return reply["result"]
    if reply["error"].startswith("MemoryError"):
        raise MemoryError(f"took more than {MEMORY // 2**30} GiB")
    raise CallRaised(reply["error"], reply["detail"])
