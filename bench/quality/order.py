"""What an arm is told to do, and what it tells. Imports the standard library alone."""

import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass

from bench.quality.tasks import BY_NAME, SEED, Task, Trial


@dataclass(frozen=True, slots=True)
class Order:
    """Some runs of one arm on one task."""

    task: str
    rollouts: int
    first: int
    runs: int
    how: str = ""
    """Which of its ways the arm goes."""


@dataclass(frozen=True, slots=True)
class End:
    """What an arm ended with, by its own word."""

    text: str
    claimed: float
    """By how much it says that it is better than the seed."""


@dataclass(frozen=True, slots=True)
class Ran:
    """One run, judged by the truth."""

    gain: float
    claimed: float
    changed: bool
    rollouts: int


def obey(
    act: Callable[[Trial, Order], End], trial_of: Callable[[Task, int], Trial] = Trial
) -> None:
    """Do what the command line says, and print a line of JSON."""
    order = Order(**json.loads(sys.argv[1]))
    rows: list[dict[str, object]] = []
    for run in range(order.first, order.first + order.runs):
        trial = trial_of(BY_NAME[order.task], run)
        end = act(trial, order)
        gain = trial.truth(end.text) - trial.truth(SEED)
        rows.append(asdict(Ran(gain, end.claimed, end.text != SEED, trial.draws)))
    print(json.dumps(rows))
