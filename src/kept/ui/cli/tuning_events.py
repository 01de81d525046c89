"""`--progress json`: coordinate descent as one JSON document a line, on stdout and nothing else.

run_started baseline (cycle_started (phase_started (trial_started trial | trial)* phase_completed)+
cycle_completed)* run_completed, or error at any point, as the last. Every sitting is such a stream
of its own: one that goes on tells the baseline again, and opens the cycle and phase that it goes on
in. Cycles count from 0, as in the stream that this follows; a trial is the row that stands in
trials.jsonl. `best_loss` is in every event the train loss of the candidate that leads, by all draws
so far; `best_yaml_loss` is the same of best.yaml, which a race moves only to what is proven.
"""

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from kept.core.objective import Objective
from kept.core.plan import GATE_WHY
from kept.core.schedules.coordinate import BASELINE
from kept.core.state import State
from kept.recipes.agent_config.outputs.rows import row_of, stamp
from kept.recipes.agent_config.outputs.telling import (
    Begun,
    CycleDone,
    Listener,
    PhaseBegun,
    PhaseDone,
)
from kept.recipes.agent_config.outputs.trial import Trial
from kept.store.reader import Run
from kept.ui.report.exits import exit_reason, made_by, phase_exits, trials_in, unused_replies

SCHEMA = "holodeck.optimize.progress/v1"


class Events(Listener):
    """Writes a line for each event."""

    def __init__(
        self, write: Callable[[str], None], weights: Mapping[str, float], objective: Objective
    ) -> None:
        self._write = write
        self._weights = weights
        self._objective = objective
        self._cycles = 0

    def tell(self, event: str, **what: object) -> None:
        """One line."""
        line = {"schema": SCHEMA, "event": event, **what}
        self._write(json.dumps(line, ensure_ascii=True, separators=(",", ":")))

    def run_started(self, run: str, state: State, *, resumed: bool) -> None:
        """What the run is about."""
        started = state.started
        assert started is not None, "the first event is `run_started`"
        told = cast("dict[str, Any]", started.facts["optimizer"])
        self._cycles = int(told["budget"]["global"]["max_cycles"])
        self.tell(
            "run_started",
            run_id=run,
            agent=state.fact("id"),
            max_cycles=self._cycles,
            axes=told["axes"],
            loss_weights=dict(self._weights),
            gate=state.fact("gate"),
            gate_reason=state.fact(GATE_WHY),
            started_at=stamp(started.t),
            resumed=resumed,
        )

    def cycle_started(self, cycle: int) -> None:
        """A cycle begins."""
        self.tell("cycle_started", cycle=cycle - 1, of=self._cycles)

    def phase_started(self, begun: PhaseBegun) -> None:
        """A phase begins."""
        self.tell("phase_started", cycle=begun.cycle - 1, phase=begun.phase)

    def trial_begun(self, begun: Begun) -> None:
        """A proposal is there."""
        self.tell(
            "trial_started",
            trial_id=begun.number,
            cycle=begun.cycle - 1,
            phase=begun.phase,
            baseline_loss=begun.baseline_loss,
            params=dict(begun.params),
            textual_axis=begun.axis or None,
            edit_summary=begun.summary or None,
        )

    def taken_up(self, baseline: Trial) -> None:
        """The baseline again: a reader of this stream has seen no other."""
        self.trial_done(baseline)

    def trial_done(self, trial: Trial) -> None:
        """The row of a trial; of the baseline, its loss."""
        if trial.phase == BASELINE:
            self.tell("baseline", loss=trial.after.train, holdout_loss=trial.after.holdout)
            return
        row = row_of(trial, self._weights, self._objective)
        self.tell("trial", **row, best_loss=trial.after.train)

    def phase_done(self, done: PhaseDone) -> None:
        """A phase is over."""
        self.tell(
            "phase_completed",
            cycle=done.cycle - 1,
            phase=done.phase,
            trials=done.trials,
            accepted=done.accepted,
        )

    def cycle_done(self, done: CycleDone) -> None:
        """A cycle is over."""
        self.tell(
            "cycle_completed",
            cycle=done.cycle - 1,
            accepted=done.accepted,
            best_loss=done.best_loss,
            stop_reason="no_accepts" if done.dry else None,
        )


def tell_completed(events: Events, run: Run, folder: Path) -> None:
    """The last line: what it came to, or why it did not get there."""
    stopped = run.state.stopped
    if stopped is not None and stopped.resumable:
        events.tell("error", message=stopped.message, fatal=stopped.kind == "error")
        return
    known = trials_in(run)
    trials, best = known.rows, made_by(known, run.state.best)
    accepted = [t for t in trials[1:] if t.accepted]
    events.tell(
        "run_completed",
        run_id=run.id,
        baseline_loss=trials[0].after.train if trials else None,
        baseline_loss_of_all_draws=known.baseline.train,
        best_loss=trials[-1].after.train if trials else None,
        best_yaml_loss=known.known_of(best).train if best else None,
        accepted=len(accepted),
        cycles=max((t.cycle for t in trials), default=0),
        exit_reason=exit_reason(run),
        phase_exit_reasons=phase_exits(run),
        unused_replies=[one._asdict() for one in unused_replies(known)],
        artifacts={
            "best_yaml": str(folder / "best.yaml"),
            "trials_jsonl": str(folder / "trials.jsonl"),
            "report_md": str(folder / "report.md"),
        },
    )


def tell_error(message: str) -> None:
    """The one line of a run that could not begin, or broke off."""
    line = {"schema": SCHEMA, "event": "error", "message": message, "fatal": True}
    sys.stdout.write(json.dumps(line, separators=(",", ":")) + "\n")
    sys.stdout.flush()
