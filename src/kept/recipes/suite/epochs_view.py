"""What an optimization of prompts did, written to the registry: a view of its journal.

Each closed step is an epoch, written in one transaction and known by the run and its step, so that
a kill between journal and registry is made up for when the run goes on, and nothing is done twice:
what somebody activated since is left alone.
"""

import json
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from kept.core.event import StepClosed
from kept.core.ports import Journal
from kept.core.rollout import Purpose
from kept.core.stage import StepRecords
from kept.core.verdict import UNDECIDED, UNMEASURED
from kept.errors import SetupError
from kept.orchestrator.prompt_registry import Epoch, PromptRegistry, Suite, TaskRun
from kept.store import wire
from kept.store.journal import RunJournal
from kept.store.lines import rollout_lines
from kept.store.views import View

log = logging.getLogger("kept")

PAGE = "optimization.json"

LOOKED: tuple[Purpose, ...] = ("feedback", "probe")
"""Runs that were shown to who proposes; they judge nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimized:
    """What is optimized, and where that is written down."""

    registry: PromptRegistry
    suite: Suite
    metric: str
    seed: Mapping[str, str]
    """The texts to begin with."""
    named: Collection[str] = ()
    """Artifacts that begin with a version that was named, whatever runs use."""
    place: Path | None = None
    """A folder of a task's, for a page on it; None where it belongs to no task."""


class EpochsView(View):
    """Writes an epoch when its step closes."""

    def __init__(self, optimized: Optimized, journal: Journal) -> None:
        super().__init__(journal)
        self._of = optimized
        self._used = {k: v for k, v in optimized.seed.items() if k not in optimized.named}
        """What runs use, as far as it is what this run began with or has proven."""
        self._number = 0
        self._page: list[dict[str, object]] = []
        self._cannot = False

    def begin(self, steps: Iterable[StepRecords]) -> None:
        """Write what earlier sittings came to, as far as it is not there."""
        self._try(lambda: self._of.registry.register(self._of.suite))
        for step in steps:
            self.closed(step)
        self._write_page()

    def closed(self, step: StepRecords) -> None:
        """Write one more."""
        epoch = self._epoch(step)
        self._try(lambda: self._of.registry.record(epoch))
        self._used |= {name: epoch.after[name] for name in epoch.uses}
        changed = [name for name in epoch.after if epoch.after[name] != epoch.before[name]]
        self._page.append(
            {
                "epoch": epoch.number,
                "step": step.closed.step,
                "artifact": changed[0] if changed else None,
                "kept": epoch.kept,
                "mean_loss": epoch.loss,
                "verdict": step.closed.verdict.reason,
                "at": epoch.ended,
            }
        )
        self._write_page()

    def _epoch(self, step: StepRecords) -> Epoch:
        closed = step.closed
        told = step.opened.turn.settings.get("epoch")
        self._number = told if isinstance(told, int) else self._number
        sides = self.sides(step)
        before = dict(sides[0].texts if sides else self.journal.load(closed.incumbent).texts)
        verdict = closed.verdict
        # what was never run, or could not be told, is no version that was rolled back
        tried = verdict.code not in (*UNMEASURED, *UNDECIDED)
        after = dict(sides[1].texts) if sides and tried else before
        used = self._used
        moved = [name for name in after if after[name] != used.get(name)] if verdict.best else []
        evaluation = step.evaluation
        return Epoch(
            id=f"{self.run}/{closed.step}",
            suite=self._of.suite.id,
            number=self._number,
            started=step.opened.t,
            ended=closed.t,
            loss=evaluation.loss if evaluation else None,
            before=before,
            after=after,
            kept=verdict.outcome == "keep" or verdict.best,
            uses=tuple(moved),
            reason=verdict.reason,
            runs=self._runs(closed),
        )

    def _runs(self, closed: StepClosed) -> list[TaskRun]:
        """Every run of a task that judged what an epoch tried, and none of a later epoch."""
        if closed.candidate is None or not isinstance(self.journal, RunJournal):
            return []
        rows = rollout_lines(self.journal.folder / "rollouts.jsonl", *closed.rollouts)
        entries = [row.entry() for row in rows if isinstance(row, wire.RolloutLine)]
        metric = self._of.metric
        return [
            TaskRun(f"{self.run}/{job.scope}", job.case_id, out.metrics.get(metric), out.metrics)
            for job, out in entries
            if job.candidate_id == closed.candidate and job.purpose not in LOOKED
        ]

    def _try(self, write: Callable[[], object]) -> None:
        """A registry that cannot be written is told, once, and does not stop the run."""
        try:
            write()
        except SetupError as error:
            if not self._cannot:
                log.warning("%s; `kept resume` writes it when that is mended", error.message)
            self._cannot = True

    def _write_page(self) -> None:
        place = self._of.place
        if place is not None:
            self._try(lambda: self._write(place))

    def _write(self, place: Path) -> None:
        told = {
            "suite": self._of.suite.name,
            "run_id": self.run,
            "registry": str(self._of.registry.path),
            "epochs": self._page,
            "artifacts": {n: v.number for n, v in self._of.registry.active().items()},
        }
        text = json.dumps(told, indent=2, ensure_ascii=False)
        self.put(place / PAGE, text.encode() + b"\n")
