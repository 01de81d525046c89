"""The far end of `warm.py`: imports Kept, and forks for who asks.

A script: `python -P warm_far.py FD FD`. By the first socket it is asked by its parent, whose
children the new processes are; to the second come clients, who are told how theirs ended.
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
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, cast

import kept

LIMIT = 1 << 20
"""Bytes of a request: words and an environment."""

LATER = ("kept.adapters", "kept.testing")
"""Of no use to most commands."""

THIRD = ("aiohttp", "rich.console", "rich.live", "rich.table")
"""What commands import when they first need it."""


def preload() -> None:
    """Import all that a command may need, and leave no threads behind."""
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
