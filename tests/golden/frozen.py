"""A process in which no time passes for Kept, and which forks for every command.

Started as `python -m tests.golden.frozen`. It imports Kept once, with a clock that stands still:
run ids, times and durations are then the same in every run. Only modules of Kept see that clock;
asyncio and everything else keep the real one. Each line of its input is a request in JSON (`words`,
`cwd`, `env`, `out`, `err`), each line of its output the exit code of that command.
"""

import gc
import json
import os
import sys
import time
from types import ModuleType
from typing import Any

from tests.warm_far import become, end_of, leave, preload

NOW = 1_700_000_000.0
"""Seconds since the epoch: 2023-11-14 22:13:20 UTC."""


def frozen_time() -> ModuleType:
    """The module `time` with clocks that stand still."""
    clock = ModuleType("time")
    clock.__dict__.update(vars(time))
    clock.__dict__.update(time=lambda: NOW)
    for name in ("monotonic", "perf_counter", "thread_time", "process_time"):
        clock.__dict__[name] = lambda: 1000.0
    return clock


def import_kept() -> None:
    """Import Kept twice: first what it needs, with the real clock; then itself, with the frozen."""
    preload()
    for name in [name for name in sys.modules if name.partition(".")[0] == "kept"]:
        del sys.modules[name]
    gc.collect()
    sys.modules["time"] = frozen_time()
    preload()
    sys.modules["time"] = time


def run(request: dict[str, Any]) -> int:
    """Fork, run the command in the child and return its exit code."""
    pid = os.fork()
    if pid == 0:
        take_streams(request)
        leave(end_of(lambda: become(request)))
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def take_streams(request: dict[str, Any]) -> None:
    """Read nothing, and write stdout and stderr to the files of the request."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    opened = (
        os.open(os.devnull, os.O_RDONLY),
        *(os.open(request[name], flags) for name in ("out", "err")),
    )
    for number, descriptor in enumerate(opened):
        os.dup2(descriptor, number)
        os.close(descriptor)


if __name__ == "__main__":
    import_kept()
    for line in sys.stdin:
        print(run(json.loads(line)), flush=True)  # noqa: T201 # the answer of this process
