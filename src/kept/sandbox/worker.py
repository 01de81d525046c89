"""Worker process for user code: one line in, one line out, sandboxed if possible.

It belongs to no event loop, so it may outlive one. Each exchange reads and writes in a thread;
ending the process ends the thread.

It can read the same files as we do, but writes only to `/tmp` and its home. In the sandbox both
are held in memory. Without a sandbox this is not enforced, and `abilities` says so.
"""

import asyncio
import os
import select
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from shlex import join

from kept.sandbox import cgroup, watchdog
from kept.sandbox.bwrap import INSIDE, Site, walled
from kept.sandbox.capabilities import abilities, calls_filter
from kept.sandbox.command import Command, Limits, Network, View
from kept.sandbox.process import Status, how_ended, last_words, shell, start_alone
from kept.sandbox.temp_dirs import scratch_folder
from kept.settings import child_environment

MOST_LINE = 64 * 1024 * 1024
"""Maximum bytes of an answer; a longer line ends the process before it fills our memory."""


class ChildEnded(Exception):
    """The process has ended; the message says how."""

    def __init__(self, message: str, detail: str = "") -> None:
        super().__init__(message)
        self.detail = detail


class Child:
    """One worker process."""

    def __init__(
        self,
        argv: Sequence[str],
        cwd: Path,
        environment: Mapping[str, str],
        pass_fds: Sequence[int] = (),
        after: Callable[[], None] | None = None,
    ) -> None:
        """Start it; `after` is called once it has ended. Raises `OSError` on failure."""
        self._after = after
        self._over = False
        # append mode, so that it can be truncated while the process has it open
        self._errors = tempfile.TemporaryFile("a+b")  # noqa: SIM115 # closed with the process
        self._process = start_alone(
            lambda: subprocess.Popen(
                argv,
                cwd=cwd,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                pass_fds=pass_fds,
                start_new_session=True,
            )
        )
        watchdog.watch(self._process.pid)
        self._thread: threading.Thread | None = None

    @property
    def alive(self) -> bool:
        """True if it is not known to have ended."""
        return not self._over and self._process.poll() is None

    async def ask(self, line: bytes | None, seconds: float) -> bytes:
        """Return the answer to a line; None only listens. Raises `ChildEnded` or `TimeoutError`.

        A timeout, a cancellation or a broken answer ends the process.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bytes] = loop.create_future()

        def settle(answer: bytes) -> None:
            if not future.done():
                future.set_result(answer)

        def work() -> None:
            answer = self._exchange(line)
            with suppress(RuntimeError):  # the loop is closed: no task waits any more
                loop.call_soon_threadsafe(settle, answer)

        self._thread = threading.Thread(target=work, name="kept-child", daemon=True)
        self._thread.start()
        try:
            answer = await asyncio.wait_for(future, seconds)
        except (TimeoutError, asyncio.CancelledError):
            self.end()
            raise
        if not answer.endswith(b"\n"):
            raise self._ended(len(answer))
        # stderr matters only for the current request
        self._errors.truncate(0)
        return answer

    def ask_blocking(self, line: bytes | None, seconds: float) -> bytes:
        """Like `ask`, without an event loop."""
        answers: list[bytes] = []
        self._thread = threading.Thread(
            target=lambda: answers.append(self._exchange(line)), name="kept-child", daemon=True
        )
        self._thread.start()
        self._thread.join(seconds)
        if self._thread.is_alive():
            self.end()
            raise TimeoutError
        if not answers[0].endswith(b"\n"):
            raise self._ended(len(answers[0]))
        self._errors.truncate(0)
        return answers[0]

    def first_line(self, seconds: float) -> bytes:
        """Return the line that it writes unasked, without an event loop. Raises as `ask` does."""
        output = self._process.stdout
        assert output is not None
        if not select.select([output], [], [], seconds)[0]:
            self.end()
            raise TimeoutError
        answer = output.readline(MOST_LINE)
        if not answer.endswith(b"\n"):
            raise self._ended(len(answer))
        return answer

    def end(self) -> None:
        """End the process and everything it started."""
        if self._over:
            return
        self._over = True
        try:
            self._kill()
        finally:
            if self._after is not None:
                self._after()

    def _kill(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        watchdog.forget(self._process.pid)
        self._process.wait()
        if self._thread is not None:
            # the thread sees the end of the pipe at once, unless a process that left the group
            # keeps it open
            self._thread.join(1.0)
            if self._thread.is_alive():
                return
        for file in (self._process.stdin, self._process.stdout, self._errors):
            with suppress(OSError):
                assert file is not None
                file.close()

    def _exchange(self, line: bytes | None) -> bytes:
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        # no error of ours: the process has ended, which the empty answer reports
        with suppress(OSError, ValueError):
            if line is not None:
                process.stdin.write(line)
                process.stdin.flush()
            return process.stdout.readline(MOST_LINE)
        return b""

    def _ended(self, said: int) -> ChildEnded:
        """Describe its own end with its last words, or end it for an answer that is too long."""
        if said >= MOST_LINE:
            self.end()
            return ChildEnded(f"answered with more than {MOST_LINE // 1024**2} MiB")
        return self._silent()

    def _silent(self) -> ChildEnded:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
        how, said = how_ended(self._process.poll()), last_words(self._errors)
        self.end()
        last = said.rpartition("\n")[2]
        return ChildEnded(f"{how}: {last[:300]}" if last else how, said)


_READ_ONLY = "[Errno 30]"
"""Python's error number of a write to a read-only file system."""

_PR_SET_DUMPABLE = 4
"""PR_SET_DUMPABLE of linux/prctl.h."""

_DAY = 86_400.0
"""Seconds that it may serve; its CPU time may be many times that."""


@dataclass(frozen=True, slots=True)
class Room:
    """Folder, view and limits of a worker process."""

    folder: Path
    """Working folder, which it may read."""
    seen: tuple[Path, ...] = ()
    """Further files and folders that it needs, wherever they are."""
    network: Network = "none"
    passed_on: tuple[str, ...] = ()
    """Further variables of our environment that it may see."""
    limits: Limits = field(default_factory=Limits)


def start_confined(argv: Sequence[str], room: Room) -> Child:
    """Start a worker, in the sandbox if there is one; raise `OSError` on failure."""
    able = abilities()
    folder = room.folder.resolve()
    entries = folder.iterdir() if folder.is_dir() else ()
    # a candidate's folder contains the agent's own files as links
    linked = [entry for entry in entries if entry.is_symlink() and entry.exists()]
    seen = (folder, *(path.resolve() for path in (*room.seen, *linked)))
    # everything in its own folder may be read, even a `.env` file
    view = View(folder, seen=seen, readable=(folder,), network=room.network, bare=True)
    command = Command(f"exec {join(argv)}", folder, _DAY, limits=room.limits, view=view)
    open_ = ExitStack()
    try:
        scratch = open_.enter_context(scratch_folder("serve"))
        groups = open_.enter_context(cgroup.groups(able.groups, room.limits))
        own = {"HOME": str(scratch), "TMPDIR": str(scratch)}
        if not able.walls:
            words = shell(command, groups=groups)
            environment = child_environment(own, room.passed_on)
            return Child(words, folder, environment, after=open_.close)
        status = open_.enter_context(Status(calls_filter(view) if able.calls else b""))
        site = Site(scratch / "serve" / "w", groups=groups)
        # the shell's limit on processes does not apply to root
        words = walled(command, site, status, shell(command, count=os.geteuid() != 0))
        own |= {"HOME": str(INSIDE / "home"), "TMPDIR": "/tmp"}
        environment = child_environment(own, room.passed_on)
        return Child(words, Path("/"), environment, status.fds, open_.close)
    except BaseException:
        open_.close()
        raise


def start_apart(argv: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Child:
    """Start a process that sees all our files, but only its own processes.

    A process that sees ours can read their environment from /proc. The environments of Kept and of
    the shell that started it contain keys. Raises `OSError` on failure.
    """
    if not abilities().walls:
        _forbid_reading()
        return Child(argv, folder, environment)
    words = ["bwrap", "--unshare-pid", "--die-with-parent", "--dev-bind", "/", "/"]
    words += ["--proc", "/proc"]
    if os.geteuid() == 0:
        # root could remove the mount that covers our own /proc
        words += ["--cap-drop", "CAP_SYS_ADMIN", "--cap-drop", "CAP_SYS_PTRACE"]
    return Child([*words, "--chdir", str(folder), "--", *argv], folder, environment)


@cache
def _forbid_reading() -> None:
    """Prevent all but root from reading the memory and environment of this process."""
    # imported here: few machines need it
    import ctypes

    with suppress(OSError, AttributeError):  # not on Linux
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def explained(words: str) -> str:
    """Add an explanation to an error message that the sandbox caused."""
    if _READ_ONLY not in words or not abilities().walls:
        return words
    return f"{words} (between walls only its own /tmp can be written to)"
