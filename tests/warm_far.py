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

MOST_FILES = 1024
"""That are open in a process that forks; it has a dozen."""

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
    call = ctypes.PyDLL(None, use_errno=True).syscall
    python.PyOS_BeforeFork()
    pid = call(number, CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        python.PyOS_AfterFork_Child()
        return 0
    python.PyOS_AfterFork_Parent()
    if pid < 0:
        raise OSError(ctypes.get_errno(), "no process could be forked")
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
        if not message:
            asks.close()
            continue
        waits, begun = os.pipe()
        pid = fork_for_parent() if by_parent else fork_for_client(asks)
        if not pid:
            break
        os.close(begun)
        os.read(waits, 1)  # until it leads its session, if it is to: then it may be signalled
        if by_parent:
            far.send(str(pid).encode())
        else:
            asks.close()
        for fd in (waits, *streams):
            os.close(fd)
    for end in {far, asked, asks}:
        end.close()
    os.close(waits)
    return taken_over(json.loads(message), streams, begun)


def taken_over(request: dict[str, Any], streams: list[int], begun: int) -> dict[str, Any]:
    """The request of a new process, once its session and its streams are its own."""
    if request["session"]:
        os.setsid()
        # as a terminal starts it, also where the tests run under `nohup`
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    os.close(begun)
    for n, fd in enumerate(streams):
        os.dup2(fd, n)
        os.close(fd)
    return request


def fork_for_client(client: socket.socket) -> int:
    """As `os.fork`, with a process between that waits, and tells a client how it ended."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    if (between := os.fork()) or not (pid := os.fork()):
        return between
    os.closerange(3, client.fileno())
    os.closerange(client.fileno() + 1, MOST_FILES)
    ended = os.pidfd_open(pid)
    ready, _, _ = select.select([client, ended], [], [])
    if ended not in ready:
        os.kill(pid, signal.SIGKILL)  # the client is gone, which says no more than it has
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with contextlib.suppress(OSError):
        client.send(str(code if code >= 0 else 128 - code).encode())
    os._exit(0)


def become(request: dict[str, Any]) -> None:
    """Run what was asked for, as Python does that was started so."""
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
    """The code that a process ends with; less than none for the signal that is to end it."""
    try:
        run()
    except SystemExit as error:
        if error.code is None or isinstance(error.code, int):
            return error.code or 0
        sys.stderr.write(f"{error.code}\n")
    except KeyboardInterrupt:
        traceback.print_exc()
        return -signal.SIGINT
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
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
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
