"""Process helpers: limits, session, shutdown, output tail, exit status, concurrency.

Limits are set with `ulimit` of the shell, which has to start anyway. A launcher of our own would
cost as much as a short command. Limits hold for each process and are inherited.

Processes run detached from our terminal, so Ctrl-C reaches only Kept. The concurrency limit works
across event loops.
"""

import asyncio
import json
import os
import resource
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from math import ceil
from pathlib import Path
from shlex import quote
from typing import IO, Any

from kept.core.text import count
from kept.sandbox import watchdog
from kept.sandbox.command import MAX_TEXT, Command, Limits

_DETAIL = 4000
"""Bytes of a process's last output that are kept for messages."""


def how_ended(code: int | None) -> str:
    """Describe an exit code; None if the process has not ended."""
    if code is None:
        return "fell silent"
    # bwrap reports a signal as 128 + n
    with suppress(ValueError):
        return f"was killed by {signal.Signals(-code if code < 0 else code - 128).name}"
    return f"ended with exit {code}"


def last_words(errors: IO[bytes]) -> str:
    """Return the end of what a process wrote to a file of ours."""
    size = errors.seek(0, os.SEEK_END)
    errors.seek(max(0, size - _DETAIL))
    return errors.read().decode("utf-8", "replace").strip()


_BLOCK = 512
"""Unit of file sizes in POSIX `ulimit -f`, in bytes."""

_PROCESSORS = 64
"""CPU seconds allowed per second of the timeout: a process may have many threads."""

FIRST_TO_GO = 1000
"""Value of oom_score_adj: when memory runs out, commands are killed before Kept or others."""


def shell(
    command: Command, *, groups: Iterable[Path] = (), announced: bool = False, count: bool = False
) -> list[str]:
    """Return the command behind its limits and in its control groups.

    `announced`: its stdin is the pipe of the watchdog, to which it announces itself first. Without
    a group the limit on processes counts all processes of the user, unless the command is alone in
    a user namespace. Only then may it be set, by `count`.
    """
    words = [watchdog.ANNOUNCE] if announced else []
    words += [f"echo $$ > {quote(str(group))}/cgroup.procs" for group in groups]
    words.append(f"echo {FIRST_TO_GO} > /proc/self/oom_score_adj")
    words += _words(command.limits, command.timeout)
    if count and (most := command.limits.processes) is not None:
        # bash and dash have different letters for this limit
        words.append(f"ulimit -u {most} || ulimit -p {most}")
    script = "; ".join(f"{{ {word}; }} 2>/dev/null" for word in words)
    return ["/bin/sh", "-c", f'{script}; exec /bin/sh -c "$0"', command.line]


def _words(limits: Limits, timeout: float) -> list[str]:
    cpu = _capped(limits.cpu_seconds or ceil(timeout) * _PROCESSORS, resource.RLIMIT_CPU)
    words = ["ulimit -c 0", f"ulimit -t {cpu}"]
    if limits.file_size is not None:
        words.append(f"ulimit -f {-(-_capped(limits.file_size, resource.RLIMIT_FSIZE) // _BLOCK)}")
    if limits.memory is not None:
        words.append(f"ulimit -v {_capped(limits.memory, resource.RLIMIT_AS) // 1024}")
    return words


def _capped(wanted: int, name: int) -> int:
    """Wanted limit, or the hard limit if that is lower: it cannot be raised."""
    _, hard = resource.getrlimit(name)
    return wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)


_NEVER_BEGAN = 0x40
"""Kernel flag PF_FORKNOEXEC: the process was forked and has not executed a program yet."""


def start_alone(start: Callable[[], subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
    """Start a process that gets its own session (`start_new_session`), despite signals.

    Until it has that session it is in our process group. A signal to the group then ends it before
    it executes its program. Nothing has happened yet, so it is started again; otherwise a Ctrl-C
    would count as the command's own failure. Needs /proc; elsewhere it is started once.
    """
    while True:
        # returns once the child has executed the program, or is dead or dying
        process = start()
        if not _never_began(process.pid):
            return process
        # waits for the process, and closes its pipes
        process.__exit__(None, None, None)


def _never_began(pid: int) -> bool:
    try:
        told = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        # there is no /proc; or children are reaped automatically, and this one is gone
        return False
    # fields after the name, which is in brackets and may contain anything
    flags = int(told.rpartition(")")[2].split()[6])
    return bool(flags & _NEVER_BEGAN)


LOOK = 0.5
"""Seconds between two checks of a command's resource use."""

GRACE = 2.0
"""Seconds between the request to end and the kill."""

_DEATH = 10.0
"""Seconds for killed processes to disappear; a thousand processes need one."""


class Status:
    """Pipes to and from bwrap, which the command itself does not have.

    They carry the seccomp filter to bwrap, and its status reports about the command.
    """

    __slots__ = ("_reader", "_told", "calls", "writer")

    def __init__(self, calls: bytes = b"") -> None:
        """Without `calls`, bwrap gets no filter of system calls."""
        self._reader, self.writer = os.pipe()
        os.set_blocking(self._reader, False)
        self._told = b""
        self.calls: int | None = None
        if calls:
            # a filter is small enough to fit into the pipe's buffer
            reader, writer = os.pipe()
            os.write(writer, calls)
            os.close(writer)
            self.calls = reader

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
        """File descriptors that bwrap must inherit."""
        return (self.writer,) if self.calls is None else (self.writer, self.calls)

    @property
    def init(self) -> int | None:
        """Pid of the first process inside, whose end ends all others; None before it starts."""
        return self._value("child-pid")

    @property
    def ended(self) -> bool:
        """True if the command was started and ended by itself."""
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
    """A started command in its own session, which announces itself to the watchdog."""

    def __init__(
        self,
        words: Sequence[str],
        cwd: Path,
        environment: Mapping[str, str],
        writers: tuple[int, int],
        status: Status | None,
    ) -> None:
        """Start it; raise `OSError` on failure."""
        self._status = status
        self._process = start_alone(
            lambda: subprocess.Popen(
                words,
                cwd=cwd,
                env=environment,
                stdin=watchdog.pipe(),
                stdout=writers[0],
                stderr=writers[1],
                pass_fds=status.fds if status else (),
                start_new_session=True,
            )
        )

    @property
    def code(self) -> int:
        """Exit status, once it has ended."""
        return self._process.returncode

    async def see_through(self, seconds: float, too_much: Callable[[], bool] | None = None) -> bool:
        """Wait for the end, or kill the command; True if time ran out.

        `too_much` is called regularly; True from it ends the command, too.
        """
        ended = _end_of(self._process)
        deadline = time.monotonic() + seconds
        stopped = False
        try:
            while not (ended.done() or stopped) and (left := deadline - time.monotonic()) > 0:
                await asyncio.wait((ended,), timeout=min(left, LOOK) if too_much else left)
                stopped = not ended.done() and too_much is not None and too_much()
            in_time = ended.done() or stopped
        finally:
            await self._stop(ended)
        return not in_time

    async def _stop(self, ended: "asyncio.Future[None]") -> None:
        """End the process and everything it started."""
        try:
            if not ended.done():
                self._ask()
                await asyncio.wait((ended,), timeout=GRACE)
        finally:
            # also if it ended by itself: it may have left others behind
            self._kill(over=ended.done())
            watchdog.forget(self._process.pid)
            self._process.wait()

    def _ask(self) -> None:
        """Ask the command to end; not bwrap, which would kill it at once."""
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
            # bwrap ends after the last process inside, so none is left once it has ended
            _signal(init, signal.SIGKILL)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_DEATH)
                return
        self._signal_group(signal.SIGKILL)

    def _signal_group(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)


def descendants(pid: int) -> list[int]:
    """All processes below one, parents first; empty if the kernel does not list them."""
    found = _children(pid)
    for child in found:
        # the list grows during the iteration
        found.extend(_children(child))
    return found


def _children(pid: int) -> list[int]:
    try:
        return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _end_of(process: subprocess.Popen[bytes]) -> "asyncio.Future[None]":
    """Future that is done when the process ends; its exit status is not fetched yet.

    Until the status is fetched the pid stays reserved, so signals to the group cannot hit another
    process. Without pidfd, on macOS, a thread fetches it and that guarantee is lost.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()

    def tell() -> None:
        if not ended.done():
            ended.set_result(None)

    def wait() -> None:
        process.wait()
        with suppress(RuntimeError):  # the loop is closed: no task waits any more
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


_CHUNK = 65536


class Tail:
    """Last bytes written to a pipe, read at once so that no writer has to wait."""

    __slots__ = ("_dropped", "_kept", "_loop", "_most", "_reader", "writer")

    def __init__(self, most: int = MAX_TEXT) -> None:
        self._most = most
        self._loop = asyncio.get_running_loop()
        self._kept = bytearray()
        self._dropped = 0
        self._reader, self.writer = os.pipe()
        os.set_blocking(self._reader, False)
        self._loop.add_reader(self._reader, self._read)

    def __enter__(self) -> "Tail":
        return self

    def __exit__(self, *error: object) -> None:
        """Read the rest of the pipe; a process that escaped its group may keep it open."""
        os.close(self.writer)
        for _ in range(self._most // _CHUNK + 1):
            if not self._read():
                break
        self._trim()
        self._loop.remove_reader(self._reader)
        os.close(self._reader)

    @property
    def cut(self) -> bool:
        """True if the beginning was dropped."""
        return self._dropped > 0

    def text(self) -> str:
        """Kept text, preceded by a note on how much was dropped."""
        cut = f"… {count(self._dropped, 'byte')} left out …\n" if self._dropped else ""
        return cut + self._kept.decode("utf-8", "replace")

    def _read(self) -> bool:
        """Read one chunk; True if there was one."""
        try:
            chunk = os.read(self._reader, _CHUNK)
        except BlockingIOError:
            return False
        self._kept += chunk
        # trimmed occasionally, not with every chunk
        if len(self._kept) > 2 * self._most:
            self._trim()
        return bool(chunk)

    def _trim(self) -> None:
        over = len(self._kept) - self._most
        if over > 0:
            self._dropped += over
            del self._kept[:over]


class Turns:
    """Concurrency limit that outlives an event loop, as its processes do."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._of: tuple[asyncio.AbstractEventLoop, asyncio.Semaphore] | None = None

    def take(self) -> asyncio.Semaphore:
        """Semaphore of the current event loop, to be held during a turn."""
        loop = asyncio.get_running_loop()
        # a semaphore belongs to one event loop: a new loop gets a new one
        if self._of is None or self._of[0] is not loop:
            self._of = (loop, asyncio.Semaphore(self._most))
        return self._of[1]
