"""Runs arms one after the other, each in a process of its own, in rounds.

Every round runs every arm once, so that whatever else the machine is doing falls on all of them
alike; ratios are taken inside a round. Nothing runs at the same time as anything else here.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median

from bench.reading import Order, Reading, parse

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True, slots=True)
class Arm:
    """One side of a comparison."""

    name: str
    module: str
    order: Order
    python: str = sys.executable
    keeps: bool = False
    """Whether it writes its runs to a folder, a fresh one each time."""
    past: Path | None = None
    """A folder to start from; each time a copy of it."""
    repeats: int | None = None
    """Fewer than the others, for an arm that takes minutes."""


class ArmFailed(Exception):
    """An arm ended without a reading."""


def run_rounds(arms: Sequence[Arm], repeats: int) -> dict[str, list[Reading]]:
    """The readings of each arm by its name, round by round."""
    readings: dict[str, list[Reading]] = {arm.name: [] for arm in arms}
    for number in range(repeats):
        for arm in arms:
            if arm.repeats is None or number < arm.repeats:
                say(f"{arm.name} ({number + 1} of {arm.repeats or repeats})")
                readings[arm.name].append(run_arm(arm))
    return readings


def run_arm(arm: Arm) -> Reading:
    with scratch() as folder:
        order = arm.order
        if arm.past is not None:
            shutil.copytree(arm.past, folder / "past", symlinks=True)
            order = replace(order, folder=str(folder / "past"))
        elif arm.keeps:
            order = replace(order, folder=str(folder))
        done = start(arm, order)
    lines = done.stdout.splitlines()
    if done.returncode != 0 or not lines:
        raise ArmFailed(f"`{arm.name}` ended with {done.returncode}\n{done.stderr}")
    return parse(lines[-1])


def start(arm: Arm, order: Order) -> "subprocess.CompletedProcess[str]":
    command = [arm.python, "-m", arm.module, json.dumps(asdict(order))]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@contextmanager
def scratch() -> Generator[Path]:
    """A folder that is gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="kept-bench-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def say(what: str) -> None:
    """Progress, apart from the results."""
    print(f"  {what}", file=sys.stderr, flush=True)


def spread(values: Iterable[float], digits: int = 0) -> str:
    """The median, and the least and greatest where they differ."""
    ordered = sorted(values)
    if not ordered:
        return ""
    middle, low, high = (f"{v:,.{digits}f}" for v in (median(ordered), ordered[0], ordered[-1]))
    return middle if low == high else f"{middle} ({low}–{high})"


def ratio(of: Sequence[float], to: Sequence[float], digits: int = 2) -> str:
    """The median over rounds of one arm against another in the same round."""
    pairs = [a / b for a, b in zip(of, to, strict=False)]
    return f"{median(pairs):.{digits}f} ×" if pairs else ""


def cpu_each(readings: Sequence[Reading]) -> list[float]:
    """Microseconds of processor time a rollout, round by round."""
    return [reading.cpu / reading.rollouts * 1e6 for reading in readings]


def as_json(readings: Mapping[str, Sequence[Reading]]) -> dict[str, list[dict[str, object]]]:
    return {name: [asdict(reading) for reading in rows] for name, rows in readings.items()}
