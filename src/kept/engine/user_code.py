"""User code: daemon threads for blocking functions, and location of user exceptions.

`concurrent.futures` has no daemon threads. They are needed because a hanging function must not
keep the process alive when its user wants it to end.
"""

import asyncio
import os
import threading
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import Any, cast

from kept.errors import RunError

LONGEST = 1000
"""Characters of an exception that are written down."""

_NOT_THEIRS = (Path(__file__).parents[1], Path(os.__file__).parent)
"""The folders of Kept and of the standard library."""

_INSTALLED = {"site-packages", "dist-packages"}


class Tamed(RuntimeError):
    """An exception in the place of one that a task must not let through."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.stands_for = self.__cause__ = error


def said_by(error: BaseException) -> str:
    """Message of an exception, with that of its cause."""
    told = error.stands_for if isinstance(error, Tamed) else error
    try:
        words = str(told)
    except Exception:  # noqa: BLE001 # the port wrapper: an exception may fail to tell of itself
        words = "it cannot say what"
    return f"{type(told).__name__}: {words}"[:LONGEST]


def place_of(error: BaseException) -> str:
    """`file.py:12`, the last line of the user's own code that an exception came through."""
    frames = traceback.extract_tb(error.__traceback__)
    mine = [(path, f.lineno) for f in frames if _is_theirs(path := Path(f.filename))]
    if not mine:
        return place_of(error.__cause__) if error.__cause__ is not None else ""
    path, line = mine[-1]
    here = Path.cwd()
    return f"{path.relative_to(here) if path.is_relative_to(here) else path}:{line}"


def _is_theirs(path: Path) -> bool:
    installed = _INSTALLED.intersection(path.parts) or path.name.startswith("<")
    return not installed and not any(path.is_relative_to(folder) for folder in _NOT_THEIRS)


def first_of(error: BaseException) -> BaseException:
    """The first exception that task groups have bundled up."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error


@contextmanager
def ungrouped() -> Generator[None]:
    """Raise the first exception of a task group by itself, so that its type is still seen."""
    try:
        yield
    except BaseExceptionGroup as group:
        first = first_of(group)
        raise first from first.__cause__


HANGING = 256
"""Calls that may hang at once: each holds a thread that nothing can end."""


class _Call:
    """One call and who waits for it."""

    __slots__ = ("args", "ended", "function", "future", "late")

    def __init__(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        future: "asyncio.Future[Any]",
    ) -> None:
        self.function = function
        self.args = args
        self.future = future
        self.ended = False
        self.late = False
        """Nobody waits for it any more, though it has not ended."""


async def call_apart(function: Callable[..., Any], *args: object) -> Any:  # noqa: ANN401 # the function's
    """Call a function in a thread of its own."""
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    work = threading.Thread(
        target=_answer, args=(function, args, future), name="kept-propose", daemon=True
    )
    work.start()
    return await future


class Threads:
    """At most so many threads at work for someone, started as they are needed.

    A call that nobody waits for any more cannot be stopped. Its thread no longer counts, so that
    one hanging call does not have the next ones wait, and look as if they hung too.
    """

    def __init__(self, most: int, name: str = "kept-evaluate") -> None:
        self._most = most
        self._name = name
        self._limit = most + HANGING
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._started = 0
        self._calling = 0
        """Calls that have not ended, queued ones and hanging ones among them."""
        self._lock = threading.Lock()

    async def call(self, function: Callable[..., Any], *args: object) -> Any:  # noqa: ANN401 # the function's
        """Call a function in a thread."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        with self._lock:
            if self._most >= self._limit:
                raise RunError(
                    f"{HANGING} calls of {getattr(function, '__qualname__', function)} hang",
                    hint="give what it waits for a time limit of its own: a thread cannot be ended",
                )
            self._calling += 1
            start = self._started < min(self._most, self._calling)
            self._started += start
        call = _Call(function, args, future)
        self._calls.put(call)
        if start:
            threading.Thread(target=self._work, name=self._name, daemon=True).start()
        try:
            return await future
        except asyncio.CancelledError:
            with self._lock:
                call.late = not call.ended
                self._most += call.late
            raise

    def close(self) -> None:
        """Let idle threads end; a thread inside a call ends after it."""
        with self._lock:
            started, self._started = self._started, 0
        for _ in range(started):
            self._calls.put(None)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            unwanted = call.late
            if not unwanted:
                _answer(call.function, call.args, call.future)
            with self._lock:
                self._calling -= 1
                call.ended = True
                if call.late:
                    self._most -= 1
                    if not unwanted:
                        # another thread may have been started in this one's stead
                        self._started -= 1
                        return
            # a thread that waits for work holds on to nothing of the last
            del call


def _answer(
    function: Callable[..., Any], args: tuple[Any, ...], future: "asyncio.Future[Any]"
) -> None:
    try:
        answer = function(*args)
    except StopIteration as error:
        # the one exception that a future refuses: whoever awaits it would wait for ever
        tell, what = future.set_exception, RuntimeError(f"StopIteration: {error}")
    except BaseException as error:  # noqa: BLE001 # carried over to whoever awaits the future
        tell, what = future.set_exception, error
    else:
        tell, what = future.set_result, answer

    def settle() -> None:
        if not future.done():
            tell(what)

    try:
        future.get_loop().call_soon_threadsafe(settle)
    except RuntimeError:
        return  # the loop was closed while the function was at work: nobody waits any more
