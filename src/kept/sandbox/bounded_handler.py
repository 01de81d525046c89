"""Worker for functions of Kept, in bounded time and memory (`worker_main.py`)."""

import importlib
import math
import resource
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

MEMORY = 2 * 1024**3
"""Bytes of address space that a call may use."""


def prepare(
    source: str, target: str
) -> tuple[dict[str, object], Callable[[Any], Any], Callable[[Any], Any]]:
    """Import the function that `module:function` names."""
    sys.path.insert(0, source)
    module, _, name = target.partition(":")
    function = getattr(importlib.import_module(module), name)

    def call(asked: dict[str, Any]) -> Any:  # noqa: ANN401 # any JSON
        # the asking process may be gone, and C code at work lets no other thread notice that
        _limit(resource.RLIMIT_CPU, math.ceil(time.process_time() + asked["seconds"]) + 1)
        _limit(resource.RLIMIT_AS, MEMORY)
        return function(**asked["given"])

    return {}, call, lambda result: result


def _limit(name: int, most: int) -> None:
    # macOS has no limit on address space, and one that is lower already stays
    with suppress(ValueError, OSError):
        resource.setrlimit(name, (most, resource.getrlimit(name)[1]))
