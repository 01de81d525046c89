"""Stands in for your program: sends messages in batches, and prints what it measured."""

import json
import sys
import tomllib
from pathlib import Path

ARRIVALS = [n * 37 % 5000 * 12 for n in range(1500)]
"""When messages come, in milliseconds."""


def measure(batch_size: int, flush_ms: int, queue: int) -> dict[str, float]:
    """Mean wait of a message, calls made, messages lost."""
    waiting: list[int] = []
    waits: list[int] = []
    calls = lost = 0
    for now in sorted(ARRIVALS):
        if waiting and (now - waiting[0] >= flush_ms or len(waiting) >= batch_size):
            waits += [min(now, waiting[0] + flush_ms) - then for then in waiting]
            waiting, calls = [], calls + 1
        if len(waiting) < queue:
            waiting.append(now)
        else:
            lost += 1
    return {"wait_ms": sum(waits) / len(waits), "calls": calls, "lost": lost}


def main() -> None:
    """Print one JSON object."""
    sys.stdout.write(json.dumps(measure(**tomllib.loads(Path("worker.toml").read_text()))))


main()
