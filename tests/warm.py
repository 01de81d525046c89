"""Processes of Python that have imported Kept before they are asked for.

`kept` takes most of a second of CPU to start, and the tests start it some hundred times. So a
process (`warm_far.py`) imports all of it once and waits, and what is asked for is a fork of it: a
process like any other, with a pid, a parent (whoever asked), signals and streams of its own, only
that it begins where its imports have ended. What starting itself does is left to the tests that
start it (decision 0095).
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
from functools import cache
from itertools import cycle
from pathlib import Path
from typing import Any, cast

FAR = Path(__file__).with_name("warm_far.py")


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
        unused = {n: rest[n] for n in (0, 1, 3, 8, 19, 21)}
        assert unused == {0: None, 1: None, 3: (), 8: False, 19: -1, 21: -1}, unused
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
        command = [sys.executable, "-P", str(FAR), *map(str, ends)]
        # numpy starts threads, which no fork takes along, unless it is told to have one
        env = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}  # noqa: TID251 # of a process
        self._process = subprocess.Popen(command, pass_fds=ends, env=env)
        far.close()
        asked.close()

    def start(self, request: dict[str, Any], streams: list[int]) -> int:
        socket.send_fds(self._near, [json.dumps(request).encode()], streams)
        answer = self._near.recv(64)
        assert answer, f"it ended with {self._process.wait()}"
        pid = int(answer)
        assert pid > 0
        return pid


@cache
def warm() -> "cycle[Parent]":
    """In turn, so that who goes on with a run hashes otherwise than who began it."""
    return cycle([Parent(), Parent()])
