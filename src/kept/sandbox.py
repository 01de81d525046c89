"""Commands of a user: started, listened to, ended, and nothing of them left running.

A command is a line for the shell. It runs in a session of its own, so that whatever it starts can
be ended with it, and sees of the environment only what is passed on by name. There are no walls
around it yet: it reads and writes what we can, and a process that opens another session gets away.
"""

import asyncio
import errno
import os
import signal
import subprocess
import threading
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

from kept.core.rollout import Failure
from kept.settings import child_environment

TIMEOUT = 300.0
"""Seconds a command gets when nobody says otherwise."""

GRACE = 2.0
"""Seconds between the request to end and the kill."""

MAX_TEXT = 1024 * 1024
"""Bytes of stdout, and of stderr, that are kept; the last ones."""

_CHUNK = 65536
_EXHAUSTED = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENOSPC)
"""Why a process may not start that has nothing to do with the command."""


@dataclass(frozen=True, slots=True)
class Command:
    """A line for the shell, and how it is to be run."""

    line: str
    cwd: Path
    timeout: float = TIMEOUT
    env: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Exit:
    """What became of a command."""

    code: int
    """Exit status; the negated number of the signal that ended it, if one did."""
    stdout: str
    stderr: str
    timed_out: bool = False

    @property
    def ok(self) -> bool:
        """Whether it ended by itself and without complaint."""
        return self.code == 0 and not self.timed_out

    def __str__(self) -> str:
        """Its end in one line: exit status and last words."""
        lines = self.stderr.strip().splitlines()
        said = f": {lines[-1].strip()[:300]}" if lines else ""
        # a shell that waited for its child reports the signal as 128 + n
        number = -self.code if self.code < 0 else self.code - 128
        with suppress(ValueError):
            return f"killed by {signal.Signals(number).name}{said}"
        return f"exit {self.code}{said}"

    def detail(self, size: int = 4000) -> str:
        """The end of what it said on stderr."""
        return self.stderr[-size:]


async def execute(command: Command, variables: Mapping[str, str]) -> Exit | Failure:
    """Run a command to its end; a failure means that it could not even be started.

    Cancelling this ends the command first.
    """
    with ExitStack() as pipes:
        try:
            out, err = pipes.enter_context(_Tail()), pipes.enter_context(_Tail())
            process = _start(command, variables, out, err)
        except OSError as error:
            message = f"cannot start `{command.line}` in {command.cwd}: {error.strerror}"
            kind = "limit" if error.errno in _EXHAUSTED else "harness"
            return Failure(kind, "infrastructure", message)
        timed_out = await _see_through(process, command.timeout)
    return Exit(process.returncode, out.text(), err.text(), timed_out)


def _start(
    command: Command, variables: Mapping[str, str], out: "_Tail", err: "_Tail"
) -> subprocess.Popen[bytes]:
    # no shell=True: /bin/sh by its name, on every system
    return subprocess.Popen(
        ["/bin/sh", "-c", command.line],
        cwd=command.cwd,
        env=child_environment({**command.env, **variables}),
        stdin=subprocess.DEVNULL,
        stdout=out.writer,
        stderr=err.writer,
        start_new_session=True,
    )


async def _see_through(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Wait for the end, or bring it about; whether time ran out."""
    ended = _end_of(process)
    in_time = False
    try:
        await asyncio.wait((ended,), timeout=seconds)
        in_time = ended.done()
    finally:
        await _stop(process, ended)
    return not in_time


async def _stop(process: subprocess.Popen[bytes], ended: "asyncio.Future[None]") -> None:
    """Have the process and everything in its group gone."""
    try:
        if not ended.done():
            _signal_group(process, signal.SIGTERM)
            await asyncio.wait((ended,), timeout=GRACE)
    finally:
        # also when it ended by itself: it may have left others behind
        _signal_group(process, signal.SIGKILL)
        process.wait()


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


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


class _Tail:
    """The end of what is written into a pipe, read as it comes so that no writer has to wait."""

    __slots__ = ("_dropped", "_kept", "_loop", "_reader", "writer")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._kept = bytearray()
        self._dropped = 0
        self._reader, self.writer = os.pipe()
        os.set_blocking(self._reader, False)
        self._loop.add_reader(self._reader, self._read)

    def __enter__(self) -> "_Tail":
        return self

    def __exit__(self, *error: object) -> None:
        """Take what is still in the pipe; a process that escaped its group may hold it open."""
        os.close(self.writer)
        for _ in range(MAX_TEXT // _CHUNK + 1):
            if not self._read():
                break
        self._trim()
        self._loop.remove_reader(self._reader)
        os.close(self._reader)

    def text(self) -> str:
        """What was kept, and how much was not."""
        cut = f"… {self._dropped} bytes left out …\n" if self._dropped else ""
        return cut + self._kept.decode("utf-8", "replace")

    def _read(self) -> bool:
        """Take one chunk; whether there was one."""
        try:
            chunk = os.read(self._reader, _CHUNK)
        except BlockingIOError:
            return False
        self._kept += chunk
        # trimmed now and then, not with every chunk
        if len(self._kept) > 2 * MAX_TEXT:
            self._trim()
        return bool(chunk)

    def _trim(self) -> None:
        over = len(self._kept) - MAX_TEXT
        if over > 0:
            self._dropped += over
            del self._kept[:over]
