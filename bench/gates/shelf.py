"""Parts that are done, in the temporary directory: a run that was stopped goes on from there.

A part is known by what it is of and by the source that made it, so that none is ever mixed with
those of another gate. Once a run has its results, what it took from the shelf is gone: the next one
measures anew.
"""

import hashlib
import json
import tempfile
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bench.gates.drive import Run
from bench.harness import ROOT

MADE_BY = (
    *(f"bench/gates/{name}.py" for name in ("arms", "chance", "drive", "ground", "rules")),
    *(f"bench/gates/{name}.py" for name in ("tallies", "worlds")),
    *("src/kept/core", "src/kept/gates", "src/kept/recipes/race_choice.py"),
)
"""The source that decides what comes out of a run."""


class Done(NamedTuple):
    """Some runs of a cell, and the seconds of processor time that they took."""

    runs: list[Run]
    seconds: float


class Shelf:
    """The parts of one source."""

    def __init__(self, folder: Path | None = None) -> None:
        home = folder or Path(tempfile.gettempdir()) / "kept-bench-gates"
        self._folder = home / fingerprint()
        self._folder.mkdir(parents=True, exist_ok=True)

    def put(self, name: str, done: Done) -> None:
        """Whole or not at all: a run may be stopped at any time."""
        row = {"seconds": done.seconds, "runs": [asdict(run) for run in done.runs]}
        new = self._folder / f"{name}.new"
        new.write_text(json.dumps(row), encoding="utf-8")
        new.replace(self._folder / f"{name}.json")

    def get(self, name: str) -> Done | None:
        try:
            row = json.loads((self._folder / f"{name}.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        found = [Run(**run) for run in row["runs"]]
        # JSON has no tuples
        return Done([replace(run, effects=tuple(run.effects)) for run in found], row["seconds"])

    def clear(self, names: Iterable[str]) -> None:
        for name in names:
            (self._folder / f"{name}.json").unlink(missing_ok=True)


def fingerprint() -> str:
    """Of the source, and of what draws by chance."""
    digest = hashlib.sha256(np.__version__.encode())
    for name in MADE_BY:
        path = ROOT / name
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            digest.update(file.read_bytes())
    return digest.hexdigest()[:16]
