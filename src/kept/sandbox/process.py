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
"""Bytes of its last words that are worth telling."""


def how_ended(code: int | None) -> str:
    """By its exit code; None where it has not ended."""
    if code is None:
        return "fell silent"
    # bwrap reports a signal as 128 + n
    with suppress(ValueError):
        return f"was killed by {signal.Signals(-code if code < 0 else code - 128).name}"
    return f"ended with exit {code}"


def last_words(errors: IO[bytes]) -> str:
    """The end of what it wrote to a file of ours."""
    size = errors.seek(0, os.SEEK_END)
    errors.seek(max(0, size - _DETAIL))
    return errors.read().decode("utf-8", "replace").strip()


_BLOCK = 512
"""POSIX counts the size of a file in these."""

_PROCESSORS = 64
"""A process with many threads uses more seconds than pass."""

FIRST_TO_GO = 1000
"""For whom a machine without memory ends first: a command, rather than Kept or a neighbour."""


def shell(
    command: Command, *, groups: Iterable[Path] = (), announced: bool = False, count: bool = False
) -> list[str]:
    """The command, behind its limits and in its control groups.

    `announced`: its stdin is the pipe of the watchdog, by which it announces itself first.
    Without a group the limit on processes is the user's, everything else of theirs included,
    unless the command is alone in a user namespace: only then may it be set, by `count`.
    """
    words = [watchdog.ANNOUNCE] if announced else []
    words += [f"echo $$ > {quote(str(group))}/cgroup.procs" for group in groups]
    words.append(f"echo {FIRST_TO_GO} > /proc/self/oom_score_adj")
    words += _words(command.limits, command.timeout)
    if count and (most := command.limits.processes) is not None:
        # bash and dash have different letters for it
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
    """What may be asked for: a limit can be lowered, not raised."""
    _, hard = resource.getrlimit(name)
    return wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)


_NEVER_BEGAN = 0x40
"""The kernel's flag of a process that has not become a program since it was forked."""


def start_alone(start: Callable[[], subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
    """Start a process that gets a session of its own (`start_new_session`), whatever comes.

    Until it has that session it is one of our group, and a signal to the group ends it before it
    is the program it was to be. Then nothing has happened yet: it is started again, or a Ctrl-C
    would be taken for the command's own failure. Needs /proc; elsewhere it is started once.
    """
    while True:
        # returns once the child has become the program, or is dead or dying
        process = start()
        if not _never_began(process.pid):
            return process
        # waits for it, and closes its pipes
        process.__exit__(None, None, None)


def _never_began(pid: int) -> bool:
    try:
        told = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        # there is no /proc; or nobody waits for children here, and it is over and gone
        return False
    # after the name, which stands in brackets and may hold anything
    flags = int(told.rpartition(")")[2].split()[6])
    return bool(flags & _NEVER_BEGAN)


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
        self.calls: int | None = None
        if calls:
            # few enough for the pipe to hold them all
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
    """A command that was started, in a session of its own, and announces itself to the watchdog."""

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
                stdin=watchdog.pipe(),
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

    async def see_through(self, seconds: float, too_much: Callable[[], bool] | None = None) -> bool:
        """Wait for the end, or bring it about; whether time ran out.

        `too_much` is asked now and then, and ends the command, too.
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
        """Have the process and everything it started gone."""
        try:
            if not ended.done():
                self._ask()
                await asyncio.wait((ended,), timeout=GRACE)
        finally:
            # also when it ended by itself: it may have left others behind
            self._kill(over=ended.done())
            watchdog.forget(self._process.pid)
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


def descendants(pid: int) -> list[int]:
    """All processes below one, parents first; empty where the kernel does not say."""
    found = _children(pid)
    for child in found:
        # grows while we go through it
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


_CHUNK = 65536


class Tail:
    """The end of what is written into a pipe, read as it comes so that no writer has to wait."""

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
        """Take what is still in the pipe; a process that escaped its group may hold it open."""
        os.close(self.writer)
        for _ in range(self._most // _CHUNK + 1):
            if not self._read():
                break
        self._trim()
        self._loop.remove_reader(self._reader)
        os.close(self._reader)

    @property
    def cut(self) -> bool:
        """Whether the beginning was not kept."""
        return self._dropped > 0

    def text(self) -> str:
        """What was kept, and how much was not."""
        cut = f"… {count(self._dropped, 'byte')} left out …\n" if self._dropped else ""
        return cut + self._kept.decode("utf-8", "replace")

    def _read(self) -> bool:
        """Take one chunk; whether there was one."""
        try:
            chunk = os.read(self._reader, _CHUNK)
        except BlockingIOError:
            return False
        self._kept += chunk
        # trimmed now and then, not with every chunk
        if len(self._kept) > 2 * self._most:
            self._trim()
        return bool(chunk)

    def _trim(self) -> None:
        over = len(self._kept) - self._most
        if over > 0:
            self._dropped += over
            del self._kept[:over]


class Turns:
    """Outlives an event loop, as the processes do that it is for."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._of: tuple[asyncio.AbstractEventLoop, asyncio.Semaphore] | None = None

    def take(self) -> asyncio.Semaphore:
        """To be entered while a turn lasts."""
        loop = asyncio.get_running_loop()
        if self._of is None or self._of[0] is not loop:
            self._of = (loop, asyncio.Semaphore(self._most))
        return self._of[1]
