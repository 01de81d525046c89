"""How runs of one recipe are shown: what a row of `kinds` is made of."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from kept.store.glance import Glance
from kept.store.reader import Run
from kept.store.run_index import RunRow
from kept.ui.web.figures import figure
from kept.ui.web.run_page import headline

View = dict[str, object]


@dataclass(frozen=True, slots=True)
class Asked:
    """What of a long body is to be shown."""

    show: str = "all"
    page: int = 1


def no_body(run: Run, told: Glance, asked: Asked) -> View:
    """Nothing besides what every run has."""
    return {}


def steps_result(row: RunRow, folder: Path) -> str:
    """How a run with steps reads in the list."""
    if not row.steps and row.status != "running":
        return row.reason
    if row.seed_value is None:
        return "no score yet" if row.status == "running" else "no score"
    if row.keeps and row.best_value != row.seed_value:
        return f"{row.metric} {figure(row.seed_value)} → {figure(row.best_value)}"
    return f"{row.metric} {figure(row.seed_value)}"


@dataclass(frozen=True, slots=True)
class Kind:
    """How runs of a recipe are shown."""

    word: str
    template: str = "run_steps.html"
    body: Callable[[Run, Glance, Asked], View] = no_body
    result: Callable[[RunRow, Path], str] = steps_result
    headline: Callable[[Run, Glance], str] = field(default=lambda run, told: headline(told))
    steps: bool = True
    """Whether it has steps to list."""
    refinable: bool = False
    """Whether it has something to do with refinement."""
    step: Callable[[Run, int, View], View] = field(default=lambda run, step, view: view)
    """What it shows of a step, given what every step has."""
