"""What is wrong with a task, as a test wants to read it; and the cases of one."""

import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from kept.errors import SpecError
from kept.recipes.task.compile import compile_task


def problems(task: Path, *overrides: str, hints: bool = False) -> list[str]:
    """A line for each problem; with hints, each behind its line."""
    with pytest.raises(SpecError) as told:
        compile_task(task, overrides)
    found = told.value.problems
    return [f"{p.path}: {p.message}" + (f" ({p.hint})" if hints else "") for p in found]


def write_cases(folder: Path, rows: Iterable[object]) -> None:
    """One JSON value a line."""
    (folder / "cases.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
