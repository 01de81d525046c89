"""What an arm is told to do and what it read off.

Imports the standard library only: peers run this in environments of their own.
"""

import json
import resource
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Order:
    """What an arm is to do."""

    task: str
    """`instant`, `slow`, `race`, `make` or `resume`; an arm knows which of them it can."""
    rollouts: int = 0
    seconds: float = 0.0
    steps: int = 0
    cases: int = 20
    workers: int = 64
    one_in: int = 0
    """One proposal in so many wins; 0 is none."""
    folder: str = ""
    """Where runs are kept; empty is nowhere, for the arms that can do without."""
    proposals: int = 1
    """Proposals an iteration, for a peer that takes several."""
    url: str = ""
    """Where a server of models is, for those who call one."""
    reflects: bool = False
    """Whether a peer's proposer is a model that gets a prompt; else it is a plain function."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What an arm read off."""

    cpu: float
    """Seconds of processor time, user and system, of all threads; imports are not in it."""
    wall: float
    rollouts: int
    memory: float
    """Most megabytes that were resident at once, imports and interpreter included."""
    numbers: Mapping[str, float] = field(default_factory=dict[str, float])


class Stopwatch:
    """Started after the imports."""

    def __init__(self) -> None:
        self._wall = time.perf_counter()
        self._cpu = time.process_time()

    def read(self, rollouts: int, **numbers: float) -> Reading:
        cpu = time.process_time() - self._cpu
        wall = time.perf_counter() - self._wall
        return Reading(cpu, wall, rollouts, peak_memory(), numbers)


def peak_memory() -> float:
    """In megabytes."""
    # ru_maxrss of a fresh process starts at what its parent had; the kernel's own mark does not
    status = Path("/proc/self/status")
    if status.exists():
        for entry in status.read_text().splitlines():
            if entry.startswith("VmHWM:"):
                return int(entry.split()[1]) / 1024
    unit = 1024**2 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def read_order() -> Order:
    """From the command line of an arm."""
    return Order(**json.loads(sys.argv[1]))


def tell(reading: Reading) -> None:
    """To the process that started the arm."""
    print(json.dumps(asdict(reading)))


def parse(line: str) -> Reading:
    found: dict[str, Any] = json.loads(line)
    return Reading(**found)
