"""A process under way: waited for, asked to end, ended."""

import asyncio
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from kept.sandbox.orphan_search import descendants
from kept.sandbox.session import start_alone

LOOK = 0.5
"""Seconds between two looks at what a command has used up."""

GRACE = 2.0
"""Seconds between the request to end and the kill."""

_DEATH = 10.0
"""Seconds that the killed get to be gone; a thousand processes need one."""


class Status:
    """What bwrap is told, and tells of the command inside: by pipes that the command has not."""

    __slots__ = ("_reader", "_told", "calls", "writer")

    def __init__(self, calls: bytes = b"") -> None:
        """Without a filter of system calls, bwrap gets none."""
        self._reader, self.writer = os.pipe()
        os.set_blocking(self._reader, False)
        self._told = b""
        self.calls = _written(calls) if calls else None

    def __enter__(self) -> "Status":
        return self

    def __exit__(self, *error: object) -> None:
        self._read()
        os.close(self._reader)
        for fd in self.fds:
            os.close(fd)
        self._reader = -1

    @property
    def fds(self) -> tuple[int, ...]:
        """What bwrap has to have open."""
        return (self.writer,) if self.calls is None else (self.writer, self.calls)

    @property
    def init(self) -> int | None:
        """The first process inside, which takes all others with it; None before there is one."""
        return self._value("child-pid")

    @property
    def ended(self) -> bool:
        """Whether the command was started, and ended by itself."""
        return self._value("exit-code") is not None

    def _value(self, name: str) -> int | None:
        self._read()
        for line in self._told.splitlines():
            with suppress(ValueError):
                document: Any = json.loads(line)
                if name in document:
                    return int(document[name])
        return None

    def _read(self) -> None:
        with suppress(BlockingIOError):
            if self._reader >= 0:
                self._told += os.read(self._reader, 65536)


class Running:
    """A command that was started, in a session of its own."""

    def __init__(
        self,
        words: Sequence[str],
        cwd: Path,
        environment: Mapping[str, str],
        writers: tuple[int, int],
        status: Status | None,
    ) -> None:
        """Start it; raises `OSError` where it cannot be."""
        self._status = status
        self._process = start_alone(
            lambda: subprocess.Popen(
                words,
                cwd=cwd,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=writers[0],
                stderr=writers[1],
                pass_fds=status.fds if status else (),
                start_new_session=True,
            )
        )

    @property
    def code(self) -> int:
        """Its exit status, once it has ended."""
        return self._process.returncode

    async def see_through(self, seconds: float, too_much: Callable[[], bool]) -> bool:
        """Wait for the end, or bring it about; whether time ran out.

        What is too much is looked for now and then, and ends the command, too.
        """
        ended = _end_of(self._process)
        deadline = time.monotonic() + seconds
        stopped = False
        try:
            while not (ended.done() or stopped) and (left := deadline - time.monotonic()) > 0:
                await asyncio.wait((ended,), timeout=min(left, LOOK))
                stopped = not ended.done() and too_much()
            in_time = ended.done() or stopped
        finally:
            await self._stop(ended)
        return not in_time

    async def _stop(self, ended: "asyncio.Future[None]") -> None:
        """Have the process and everything it started gone."""
        try:
            if not ended.done():
                self._ask()
                await asyncio.wait((ended,), timeout=GRACE)
        finally:
            # also when it ended by itself: it may have left others behind
            self._kill(over=ended.done())
            self._process.wait()

    def _ask(self) -> None:
        """Ask the command to end; not bwrap, which would end it at once."""
        if self._status is None:
            self._signal_group(signal.SIGTERM)
            return
        init = self._status.init
        inside = descendants(init) if init else ()
        for pid in inside:
            _signal(pid, signal.SIGTERM)
        if not inside:
            self._signal_group(signal.SIGKILL)

    def _kill(self, *, over: bool) -> None:
        init = self._status.init if self._status and not over else None
        if init is not None:
            # bwrap ends when the last process inside is gone: then none is left behind us
            _signal(init, signal.SIGKILL)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_DEATH)
                return
        self._signal_group(signal.SIGKILL)

    def _signal_group(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)


def _written(data: bytes) -> int:
    """The end of a pipe that holds some bytes, few enough for it, and no more."""
    reader, writer = os.pipe()
    os.write(writer, data)
    os.close(writer)
    return reader


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _end_of(process: subprocess.Popen[bytes]) -> "asyncio.Future[None]":
    """Done when the process is; its exit status is still to be fetched then.

    As long as nobody fetches it the pid stays taken, so the group can be signalled without hitting
    a stranger. Without pidfd, on macOS, a thread fetches it and that guarantee is gone.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()

    def tell() -> None:
        if not ended.done():
            ended.set_result(None)

    def wait() -> None:
        process.wait()
        with suppress(RuntimeError):  # the loop is closed: nobody wants to know any more
            loop.call_soon_threadsafe(tell)

    try:
        fd = os.pidfd_open(process.pid)
    except (AttributeError, OSError):
        threading.Thread(target=wait, name="kept-wait", daemon=True).start()
        return ended

    def tell_and_close() -> None:
        loop.remove_reader(fd)
        os.close(fd)
        tell()

    loop.add_reader(fd, tell_and_close)
    return ended
