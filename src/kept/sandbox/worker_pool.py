"""Pools of worker processes: started on demand, reused, killed on timeout.

`WorkerPool` is for handlers of any kind. `BoundedCalls` is for functions of Kept on untrusted input
that have no time limit of their own, or lose it in C code. Examples are regular expressions, JSON
schemas, and parsers of office files and web pages.
"""

import atexit
import json
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from kept.core.parsing import parse_json
from kept.core.text import count
from kept.sandbox.bounded_handler import MEMORY
from kept.sandbox.process import Turns
from kept.sandbox.worker import Child, ChildEnded
from kept.settings import child_environment, processors

WORKER = Path(__file__).with_name("worker_main.py")
"""Script that every worker runs."""

START_SECONDS = 60.0
"""Seconds for starting a process and importing its handler."""

MAX_WAITING = 8
"""Processes of a pool whose code may wait for a service; more only on more processors."""

_BOUNDED = Path(__file__).with_name("bounded_handler.py")
_UNLIMITED = 1 << 30
_SOURCE = Path(__file__).parents[2]


class CallRaised(Exception):
    """The handler raised an exception in its process."""

    def __init__(self, message: str, detail: str) -> None:
        super().__init__(message)
        self.detail = detail


class CannotServe(ChildEnded):
    """The handler cannot serve, and says why."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"cannot begin: {problem}")
        self.problem = problem


def worker_command(handler: Path, *arguments: str) -> list[str]:
    """Return the words that start a worker with a handler."""
    # -B: write no bytecode beside the user's modules, least of all in a check
    return [sys.executable, "-B", "-P", str(WORKER), str(handler), *arguments]


class WorkerPool:
    """Worker processes, each of which answers one request at a time."""

    def __init__(
        self,
        start: Callable[[], Child],
        start_seconds: float = START_SECONDS,
        most: int | None = None,
    ) -> None:
        """`start` raises `OSError` on failure; `most` limits concurrent requests."""
        self._start_child = start
        self._parse: Callable[[bytes], Any] = partial(parse_json, unique_keys=True)
        self._start_seconds = start_seconds
        self._idle: list[Child] = []
        self.turns = Turns(most or _UNLIMITED)
        self._first = Turns(1)
        self._about: dict[str, Any] | None = None

    async def about(self) -> dict[str, Any]:
        """Return what the handler reported at its start; start a process if none ever was."""
        # one start at a time: other callers wait for its report
        async with self._first.take():
            if self._about is None:
                await self.prepare()
        assert self._about is not None, "a process that was started has said so"
        return self._about

    async def prepare(self) -> None:
        """Start an idle process, so that the next request does not wait for one."""
        if not self._idle:
            self.give_back(await self.take())

    async def take(self) -> Child:
        """Return an idle process, to be given back or ended.

        Raises `OSError` if none can be started, and `ChildEnded`.
        """
        if child := self._rested():
            return child
        child = self._start_child()
        try:
            self._greet(child, await child.ask(None, self._start_seconds))
        except TimeoutError as error:
            raise self._late() from error
        return child

    def give_back(self, child: Child) -> None:
        """Return a process to the pool, unless it has ended."""
        if child.alive:
            self._idle.append(child)

    async def ask(self, given: Mapping[str, object], seconds: float) -> Any:  # noqa: ANN401 # any JSON
        """Return the result of one request.

        Raises `CallRaised`, `TimeoutError`, `ChildEnded`, `OSError` if no process can be started,
        and `ValueError` for a result that cannot be used.
        """
        async with self.turns.take():
            child = await self.take()
            try:
                return await self.ask_one(child, given, seconds)
            finally:
                self.give_back(child)

    async def ask_one(self, child: Child, given: Mapping[str, object], seconds: float) -> Any:  # noqa: ANN401 # any JSON
        """Like `ask`, with a process that was taken and stays so."""
        return self._result(child, await child.ask(_line(given), seconds))

    def close(self) -> None:
        """End the idle processes."""
        while self._idle:
            self._idle.pop().end()

    def _rested(self) -> Child | None:
        """Idle process that has not ended; None if there is none."""
        with suppress(IndexError):  # none left, or another thread took the last one
            while True:
                child = self._idle.pop()
                if child.alive:
                    return child
                child.end()
        return None

    def _greet(self, child: Child, line: bytes) -> None:
        about: dict[str, Any] = json.loads(line)
        if "problem" in about:
            child.end()
            raise CannotServe(about["problem"])
        self._about = about

    def _late(self) -> ChildEnded:
        return ChildEnded(f"does not begin within {count(self._start_seconds, 'second')}")

    def _result(self, child: Child, answer: bytes) -> Any:  # noqa: ANN401 # any JSON
        try:
            reply: dict[str, Any] = self._parse(answer)
        except BaseException:
            # requests and answers may be out of step
            child.end()
            raise
        if "result" in reply:
            return reply["result"]
        raise CallRaised(reply["error"], reply["detail"])


def bounded_start(target: str) -> Callable[[], Child]:
    """Start a worker that calls a function of Kept, `module:function`, in bounded time and memory.

    Its requests are `{"given": ARGUMENTS, "seconds": SECONDS}`.
    """
    argv = worker_command(_BOUNDED, str(_SOURCE), target)
    return lambda: Child(argv, _SOURCE, child_environment({}))


class BoundedCalls(WorkerPool):
    """Calls one function, named `module:function`, with JSON for arguments and result."""

    def __init__(self, target: str) -> None:
        super().__init__(bounded_start(target))
        # results come from Kept's own functions, so plain parsing suffices
        self._parse = json.loads
        self._blocking = threading.BoundedSemaphore(processors())
        atexit.register(self.close)

    async def ask(self, given: Mapping[str, object], seconds: float) -> Any:  # noqa: ANN401 # any JSON
        """Return the function's result; the caller limits the concurrent calls.

        Raises `TimeoutError`, `MemoryError` beyond `MEMORY`, `CallRaised`, `OSError` if no process
        can be started, and `ChildEnded` if it ended.
        """
        try:
            return await super().ask({"given": given, "seconds": seconds}, seconds)
        except CallRaised as error:
            _raise_again(error)

    def call(self, given: Mapping[str, object], seconds: float) -> Any:  # noqa: ANN401 # any JSON
        """Like `ask`, without an event loop; runs at most one call per processor at once."""
        with self._blocking:
            child = self._rested() or self._start_blocking()
            line = _line({"given": given, "seconds": seconds})
            try:
                return self._result(child, child.ask_blocking(line, seconds))
            except CallRaised as error:
                _raise_again(error)
            finally:
                self.give_back(child)

    def _start_blocking(self) -> Child:
        child = self._start_child()
        try:
            self._greet(child, child.ask_blocking(None, self._start_seconds))
        except TimeoutError as error:
            raise self._late() from error
        return child


def _line(given: Mapping[str, object]) -> bytes:
    return json.dumps(given, default=repr).encode() + b"\n"


def _raise_again(error: CallRaised) -> NoReturn:
    if str(error).startswith("MemoryError"):
        raise MemoryError(f"took more than {MEMORY // 2**30} GiB") from error
    raise error
