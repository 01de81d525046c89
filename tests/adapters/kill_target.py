"""A process to be killed: the tutorial on Kept, with models that write down every call.

Usage: python -m tests.adapters.kill_target RUN_DIR CALLS
"""

import hashlib
import sys
import time
from functools import partial
from pathlib import Path

import kept
from kept.adapters import gepa
from tests.adapters.gepa_world import IDEAS, RULE, SEED, Task, tutorial


class Slow(Task):
    """Takes its time, knows no chance, and writes down what it is asked."""

    def __init__(self, calls: Path) -> None:
        super().__init__(0.0, 1.0)
        self.path = calls

    def __call__(self, messages: list[dict[str, str]]) -> str:
        time.sleep(0.004)
        with self.path.open("a") as file:
            file.write("task\n")
        return super().__call__(messages)


def reflection(calls: Path, prompt: str) -> str:
    """A prompt that is a function of what it is told."""
    with calls.open("a") as file:
        file.write("reflection\n")
    at = hashlib.sha256(prompt.encode()).digest()[0]
    return f"<new-text>\n{SEED} {[i for i in IDEAS if i != RULE or at < 40][at % 4]}\n</new-text>"


def main(folder: str, calls: str) -> None:
    path = Path(calls)
    result = tutorial(
        gepa,
        Slow(path),
        partial(reflection, path),
        run_dir=folder,
        budget=kept.Budget(max_iterations=30),
        max_metric_calls=900,
    )
    sys.stdout.write(result.best_candidate["system_prompt"])


if __name__ == "__main__":
    main(*sys.argv[1:])
