"""Kept, by `kept.optimize`; resumed by `resume="last"`, as its guide says."""

from pathlib import Path
from typing import Any

import kept
from bench.reliability.world import (
    CASES,
    SEED,
    STEPS,
    WORKERS,
    finished,
    main,
    propose,
    report,
    score,
)
from kept.core.event import Event, StepClosed
from kept.core.state import State
from kept.store.verify import verify_run

SPLIT = kept.Cases(
    train=(kept.Case("t0", 0),),
    holdout=tuple(kept.Case(f"h{n}", n) for n in range(CASES)),
)


class Progress:
    """Reports each step that is closed. Implements `Sink`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def on_event(self, event: Event, state: State) -> None:
        if isinstance(event, StepClosed):
            for name, loss in judged(event):
                report(self._folder, name, loss)


def judged(step: StepClosed) -> list[tuple[str, float]]:
    """Return the losses of both sides of a step."""
    name = f"step {step.step}"
    return [(f"{name} {one.candidate}", one.loss or 0.0) for one in step.evaluations]


def check(folder: Path) -> bool:
    """Tell whether `kept doctor RUN` reports damage."""
    (path,) = folder.glob("runs/*")
    return any(one.severity != "ok" for one in verify_run(path))


def run(folder: Path, port: int) -> dict[str, Any]:
    def evaluate(candidate: str, case: int) -> float:
        return score(port, candidate, case)

    def next_text(brief: kept.Brief) -> str:
        return propose(brief.incumbent.text, brief.step)

    result = kept.optimize(
        SEED,
        evaluate,
        SPLIT,
        proposers=[next_text],
        gate="strict",
        budget=STEPS,
        workers=WORKERS,
        home=folder,
        resume="last" if any(folder.glob("runs/*")) else None,
        sinks=[Progress(folder)],
    )
    with kept.read_run(result.folder) as past:
        steps = [past.closed(closed.step) for closed in past.state.history]
        best = past.best.text
    pairs = [pair for step in steps for pair in judged(step)]
    cases = [repr((step.verdict, [one.cases for one in step.evaluations])) for step in steps]
    return {"best": best, "finished": finished(pairs), "cases": cases}


if __name__ == "__main__":
    main(run, check)
