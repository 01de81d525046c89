"""The results file of a task: one JSON line an iteration.

Holds the lines of every run of the task; those of other runs are left as they are.
"""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kept.core.artifact import Candidate
from kept.core.edit import changed_paths, line_counts
from kept.core.objective import Objective
from kept.core.ports import Journal
from kept.core.stage import StepRecords, stages_of
from kept.store.export_digests import run_of
from kept.store.views import View


class ResultsFile(View):
    """Appends a line for each closed step."""

    def __init__(
        self, path: Path, below: Path, objective: Objective, on_failure: str, journal: Journal
    ) -> None:
        """No folder between `below`, the folder of the task, and the file may be a link."""
        super().__init__(journal)
        self._path = path
        self._below = below
        self._objective = objective
        self._on_failure = on_failure

    def begin(self, steps: Iterable[StepRecords]) -> None:
        """Write the lines of this run anew, behind those of others."""
        others = [line for line in _lines(self._path) if run_of(line) not in (self.run, None)]
        own = b"".join(map(self._line, steps))
        self.replace(self._path, own, self._below, others=b"".join(others))

    def closed(self, step: StepRecords) -> None:
        """Append its line."""
        self.append(self._path, self._line(step), self._below, shared=True)

    def _line(self, step: StepRecords) -> bytes:
        row = self._row(step)
        # surrogates stand for bytes that are not UTF-8, and only escapes can carry them
        return json.dumps(row, ensure_ascii=True).encode() + b"\n"

    def _row(self, step: StepRecords) -> dict[str, Any]:
        closed, evaluation = step.closed, step.evaluation
        verdict = closed.verdict
        row: dict[str, Any] = {
            "run": step.started.run_id,
            "iteration": closed.step,
            "decision": verdict.outcome,
            "reason": verdict.words,
            "code": verdict.code,
        }
        if verdict.outcome == "crash":
            row["on_failure"] = self._on_failure
        measured = evaluation.metrics.items() if evaluation else ()
        sides = self.sides(step)
        return row | {
            "candidate": closed.candidate,
            "incumbent": closed.incumbent,
            "metrics": {name: tally.mean for name, tally in measured},
            "constraints": [
                {
                    "metric": one.constraint.metric,
                    "op": one.constraint.op,
                    "value": one.constraint.value,
                    "measured": one.measured,
                    "holds": one.holds,
                }
                for one in step.checked(self._objective)
            ],
            "diff": [_change(path, *sides) for path in changed_paths(*sides)] if sides else [],
            "stages": {
                s.name: {"t": s.t, "what": s.what} for s in stages_of(step, self._objective)
            },
        }


def _change(path: str, before: Candidate, after: Candidate) -> dict[str, Any]:
    """How much of a file changed, and the sha256 of it before and after."""
    old, new = before.texts.get(path), after.texts.get(path)
    removed, added = line_counts(old or "", new or "")
    hashes = {"before": _sha256(old), "after": _sha256(new)}
    return {"path": path, "removed": removed, "added": added, **hashes}


def _sha256(text: str | None) -> str | None:
    if text is None:
        return None
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def is_results_file(path: Path) -> bool:
    """Whether a file is one that may be written to: not there, empty, or made by us."""
    return all(run_of(line) is not None for line in _lines(path))


def _lines(path: Path) -> list[bytes]:
    """Every whole line; the rest of one that a kill cut off is none."""
    if not path.exists():
        return []
    lines = path.read_bytes().splitlines(keepends=True)
    return [line for line in lines if line.endswith(b"\n")]
