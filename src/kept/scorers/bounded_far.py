"""The far end of a bounded check: measures one text, and no longer than it may."""

import math
import resource
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from kept.scorers.checks import Matches, Measured, Parses

MEMORY = 2 * 1024**3
"""Bytes of address space."""

KINDS = {"Matches": Matches, "Parses": Parses}


def measure(case: Mapping[str, Any]) -> Measured:
    """What a check says of a text."""
    # whoever asked may be gone, and an expression at work lets no other thread notice that
    _hold(resource.RLIMIT_CPU, math.ceil(time.process_time() + case["seconds"]) + 1)
    _hold(resource.RLIMIT_AS, MEMORY)
    return KINDS[case["kind"]](*case["of"]).measure(case["text"], "")


def _hold(name: int, most: int) -> None:
    # macOS has no limit on address space, and one that is lower already stays
    with suppress(ValueError, OSError):
        resource.setrlimit(name, (most, resource.getrlimit(name)[1]))
