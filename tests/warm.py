"""Processes of Python that have imported Kept before they are asked for.

`kept` takes most of a second of CPU to start, and the tests start it a thousand times. So a process
imports all of it once and waits, and what is asked for is a fork of it: a process like any other,
with a pid, a parent (whoever asked), signals and streams of its own, only that it begins where its
imports have ended. What starting itself does is left to tests that start it: of the command, of the
wheel, of the pages.
"""

import atexit
import contextlib
import ctypes
import gc
import importlib
import io
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable
from functools import cache
from itertools import cycle
from pathlib import Path
from typing import Any, NoReturn, cast

LIMIT = 1 << 20
"""Bytes of a request: words and an environment."""

LATER = ("kept.web", "kept.adapters", "kept.testing")
"""Of no use to most commands."""

THIRD = ("aiohttp", "rich.console", "rich.live", "rich.table")
"""What commands import when they first need it."""


class Popen(subprocess.Popen[str]):
    """A process of `[sys.executable, "-m", "kept", ...]` or `[sys.executable, FILE, ...]`."""

    def _execute_child(self, args: list[str], *rest: Any) -> None:
        # in the order of `subprocess.Popen`, which has no public place for another way to start
        cwd, env, pipes = rest[4], rest[5], rest[9:15]
        theirs = (pipes[0], pipes[3], pipes[5])
        streams = [given if given >= 0 else n for n, given in enumerate(theirs)]
        request = {
            "words": args[1:],
            "cwd": os.fspath(cwd or Path.cwd()),
            "env": dict(os.environ if env is None else env),  # noqa: TID251 # of a process
            "session": rest[20],
        }
        assert args[0] == sys.executable
        self.pid = next(warm()).start(request, streams)
        self._child_created = True
        cast("Any", self)._close_pipe_fds(*pipes)


CLIENT = """#!{python} -IS
import json, os, socket, sys
asked = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
asked.connect({address!r})
words = [{kept!r}, *sys.argv[1:]]
request = {{"words": words, "cwd": os.getcwd(), "env": dict(os.environ), "session": False}}
socket.send_fds(asked, [json.dumps(request).encode()], [0, 1, 2])
sys.exit(int(asked.recv(64)))
"""
"""The command `kept` for who is no Python: waits for a process that does what it is asked."""


def put_command(folder: Path) -> None:
    """Write `kept` into a folder, to be found on a PATH."""
    kept = Path(sys.executable).with_name("kept")
    places = {"python": sys.executable, "kept": str(kept), "address": next(warm()).address}
    client = folder / "kept"
    client.write_text(CLIENT.format(**places), encoding="utf-8")
    client.chmod(0o755)


class Parent:
    """The near end of a process that forks on demand."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="kept-warm-")
        self.address = f"{self._folder.name}/asked"
        self._near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        asked = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        asked.bind(self.address)
        asked.listen()
        ends = [far.fileno(), asked.fileno()]
        command = [sys.executable, "-P", __file__, *map(str, ends)]
        # numpy starts threads, which no fork takes along, unless it is told to have one
        env = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}  # noqa: TID251 # of a process
        self._process = subprocess.Popen(command, pass_fds=ends, env=env)
        far.close()
        asked.close()

    def start(self, request: dict[str, Any], streams: list[int]) -> int:
        socket.send_fds(self._near, [json.dumps(request).encode()], streams)
        answer = self._near.recv(64)
        assert answer, f"it ended with {self._process.wait()}"
        return int(answer)


@cache
def warm() -> "cycle[Parent]":
    """In turn, so that who goes on with a run hashes otherwise than who began it."""
    return cycle([Parent(), Parent()])


def preload() -> None:
    import kept

    for found in pkgutil.walk_packages(kept.__path__, "kept."):
        if not found.name.startswith(LATER) and not found.name.endswith("__main__"):
            importlib.import_module(found.name)
    for name in THIRD:
        importlib.import_module(name)
    assert len([*Path("/proc/self/task").iterdir()]) == 1, "who has threads must not fork"
    gc.collect()
    gc.freeze()


CLONE_PARENT, SYS_CLONE = 0x8000, {"x86_64": 56, "aarch64": 220}


def fork_for_parent() -> int:
    """As `os.fork`, but the new process is a child of our parent, who can wait for it."""
    number = SYS_CLONE[os.uname().machine]
    python = ctypes.pythonapi
    call = ctypes.PyDLL(None).syscall
    python.PyOS_BeforeFork()
    pid = call(number, CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0)
    if pid:
        python.PyOS_AfterFork_Parent()
    else:
        python.PyOS_AfterFork_Child()
    return pid


def serve(far: socket.socket, asked: socket.socket) -> dict[str, Any]:
    """What a new process is to be; of the one that forks nothing comes back."""
    while True:
        ready, _, _ = select.select([far, asked], [], [])
        by_parent = far in ready
        asks = far if by_parent else asked.accept()[0]
        message, streams, _, _ = socket.recv_fds(asks, LIMIT, 3)
        if by_parent and not message:
            sys.exit()
        pid = fork_for_parent() if by_parent else fork_for_client(asks)
        if not pid:
            break
        if by_parent:
            far.send(str(pid).encode())
        else:
            asks.close()
        for fd in streams:
            os.close(fd)
    for end in {far, asked, asks}:
        end.close()
    for n, fd in enumerate(streams):
        os.dup2(fd, n)
        os.close(fd)
    return json.loads(message)


def fork_for_client(client: socket.socket) -> int:
    """As `os.fork`, with a process between that waits, and tells a client how it ended."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    if (between := os.fork()) or not (pid := os.fork()):
        return between
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    client.send(str(code if code >= 0 else 128 - code).encode())
    os._exit(0)


def become(request: dict[str, Any]) -> None:
    """Run what was asked for, as Python does that was started so."""
    if request["session"]:
        os.setsid()
    os.chdir(request["cwd"])
    os.environ.clear()  # noqa: TID251 # of a process
    os.environ.update(request["env"])  # noqa: TID251 # of a process
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 # as long as the process
    sys.stdout = stream(1, sys.stdout.errors or "strict")
    sys.stderr = stream(2, "backslashreplace")
    path = request["env"].get("PYTHONPATH")
    sys.path[0:0] = path.split(os.pathsep) if path else []
    words: list[str] = request["words"]
    if words[0] == "-m":
        sys.path.insert(0, request["cwd"])
        sys.argv = words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, str(Path(words[0]).resolve().parent))
        sys.argv = words
        runpy.run_path(words[0], run_name="__main__")


def end_of(run: Callable[[], None]) -> int:
    """The code that a process ends with; what it was interrupted by ends it here."""
    try:
        run()
    except SystemExit as error:
        if error.code is None or isinstance(error.code, int):
            return error.code or 0
        sys.stderr.write(f"{error.code}\n")
    except KeyboardInterrupt:
        traceback.print_exc()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:  # noqa: BLE001 # as Python itself
        traceback.print_exc()
    else:
        return 0
    return 1


def leave(code: int) -> NoReturn:
    """End as Python does, but for taking apart all that was imported: that takes the longest."""
    cast("Any", threading)._shutdown()
    cast("Any", atexit)._run_exitfuncs()
    for opened in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            opened.flush()
    os._exit(code)


def stream(fd: int, errors: str) -> io.TextIOWrapper:
    """As Python opens it at its start."""
    raw = io.FileIO(fd, "w", closefd=False)
    at_once = bool(os.environ.get("PYTHONUNBUFFERED"))  # noqa: TID251 # of a process
    by_line = fd == 2 or raw.isatty()
    wrapped = (io.BufferedWriter(raw), "utf-8", errors)
    return io.TextIOWrapper(*wrapped, line_buffering=by_line or at_once)


if __name__ == "__main__":
    preload()
    wanted = serve(*(socket.socket(fileno=int(end)) for end in sys.argv[1:]))
    leave(end_of(lambda: become(wanted)))
