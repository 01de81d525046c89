"""Small real runs for the report to tell of."""

from pathlib import Path

import kept
from kept.core.event import StepClosed
from kept.store.reader import Run

TEXTS = ["no\n", "good\n```\ngood\n```\n", "crash\n", "good\ngood\ngood\n"]


def score(candidate: kept.Candidate, case: object = None) -> float:
    if "crash" in candidate.text:
        raise RuntimeError("it fell | over\nbadly")
    return candidate.text.count("good") / 10


def make_run(folder: Path, texts: list[str] = TEXTS, cases: int = 10) -> Run:
    result = kept.optimize(
        "good\n",
        score,
        range(cases) if cases else None,
        proposers=texts,
        bounds=(0, 1),
        home=folder / ".kept",
        width=1,
    )
    return Run(result.folder)


def cut(run: Run, before_step: int) -> Run:
    """The run as a kill in the middle of a step leaves it: proposed, partly rolled out, open."""
    spine = run.folder / "journal.jsonl"
    lines = spine.read_bytes().splitlines(keepends=True)
    at = next(
        n
        for n, event in enumerate(run.events)
        if isinstance(event, StepClosed) and event.step == before_step
    )
    spine.write_bytes(b"".join(lines[:at]))
    (run.folder / "steps.idx").unlink()  # it tells how the run was closed
    run.close()
    return Run(run.folder)
