"""The files of a refinement: each iteration in a folder of its own, the session beside its seed.

All of it is a view of the journal. What an iteration is given is a copy: whoever edits it in place
changes nothing of the seed run, wherever that lies.

    ROOT/iter_k/input/              what it started from
    ROOT/iter_k/gradient_input.json what was found wrong with that, before anything was asked
    ROOT/iter_k/workspace/runs/ID/  the run
    ROOT/iter_k/output/ID/          what it left
"""

import json
import logging
import shutil
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kept.agents.record import AgentRun
from kept.agents.refine.best import Winner, recover, write_best
from kept.agents.refine.made import Made, all_made, best_of
from kept.agents.refine.rerun import Iterating
from kept.agents.refine.session import Session, session_stamp, write_session
from kept.agents.rundir.write import Layout, write_run
from kept.core.event import Event, RunStopped
from kept.core.ports import Journal
from kept.core.proposal import ClosedStep
from kept.core.refine import attempts, reruns, stop_word
from kept.core.rollout import Job
from kept.core.score import Outcome
from kept.core.state import State
from kept.store.files import write_below
from kept.store.views import write_whole

log = logging.getLogger("kept")


@dataclass(frozen=True, slots=True)
class IterationFolders:
    """Implements `kept.agents.refine.rerun.Places`.

    What cannot be written is warned of: the journal has it, and an iteration is not lost for it.
    """

    root: Path

    def prepared(self, about: Iterating) -> None:
        """Write what an iteration is given; before the first call of its manager (rule R36)."""
        folder = self.root / f"iter_{about.k}"
        told = json.dumps(about.start.findings.document(), indent=2, ensure_ascii=False)
        with _warned():
            # what a killed sitting left half written
            shutil.rmtree(folder / "input", ignore_errors=True)
            write_below(folder / "input", about.start.files)
            write_whole(folder / "gradient_input.json", told.encode("utf-8", "replace") + b"\n")

    def ended(self, about: Iterating, run: AgentRun, files: Mapping[str, bytes]) -> None:
        """Write the run as its source lays it out."""
        layout = Layout(f"workspace/runs/{run.run_id}")
        with _warned():
            write_run(self.root / f"iter_{about.k}", run, files, layout)


@contextmanager
def _warned() -> Generator[None]:
    try:
        yield
    except OSError as error:
        log.warning("cannot write %s: %s", error.filename, error.strerror)


class Shelf(Protocol):
    """Where a session is told of, and where the best is put."""

    def write(self, session: Session) -> None:
        """Tell what is true of a session now."""
        ...

    def put(self, winner: Winner, made: Made) -> None:
        """Put the best there, if it is better than what is there."""
        ...

    def recover(self) -> None:
        """Put right what a kill left."""
        ...


@dataclass(frozen=True, slots=True)
class BesideSeed:
    """The folder of the seed run. Implements `Shelf`."""

    seed: Path

    def write(self, session: Session) -> None:
        """In a file of its own."""
        write_session(self.seed, session)

    def put(self, winner: Winner, made: Made) -> None:
        """In BEST of the seed."""
        write_best(self.seed, winner, made.files)

    def recover(self) -> None:
        """After a kill."""
        recover(self.seed)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPlace:
    """What is told of a session, and where."""

    shelf: Shelf
    root: Path
    session_id: str
    seed_run_id: str
    tiers: bool


class SessionFiles:
    """A sink that keeps the session and BEST as the journal has them."""

    def __init__(self, place: SessionPlace, journal: Journal) -> None:
        self._place = place
        self._journal = journal
        self._told = False

    def on_event(self, event: Event, state: State) -> None:
        """Write what is true now; after a kill the next sitting begins by that."""
        if event.kind not in ("run_started", "run_resumed", "step_closed", "run_stopped"):
            return
        done = reruns(state)
        made = all_made(self._journal.load(state.seed), done)
        ended = event.t if isinstance(event, RunStopped) else None
        try:
            self._best(made, done)
            self._place.shelf.write(self._session(state, made, done, ended))
        except OSError as error:
            if not self._told:
                log.warning("cannot write %s: %s", error.filename, error.strerror)
            self._told = True

    def on_rollout(self, job: Job, outcome: Outcome) -> None:
        """Nothing to do."""

    def _session(
        self, state: State, made: list[Made], done: list[ClosedStep], ended: float | None
    ) -> Session:
        assert state.started is not None, "the first event is `run_started`"
        place = self._place
        best, tried = best_of(made), attempts(done)
        stopped = state.stopped
        return Session(
            session_id=place.session_id,
            seed_run_id=place.seed_run_id,
            started_at=session_stamp(state.started.t),
            completed_at=None if ended is None else session_stamp(ended),
            stop_reason=stop_name(stopped.kind, stopped.message) if stopped else None,
            best_iter=next((one.k for one in tried if one.run_id == best.run_id), 0),
            iterations=tuple(tried),
            tier_plan_used=True if place.tiers else None,
            seed_loss=round(made[0].loss, 6),
        )

    def _best(self, made: list[Made], done: list[ClosedStep]) -> None:
        place, best = self._place, best_of(made)
        place.shelf.recover()
        if best is made[0]:
            return
        k = next(one.k for one in attempts(done) if one.run_id == best.run_id)
        winner = Winner(
            best_run_id=best.run_id,
            best_loss=round(best.loss, 6),
            seed_loss=round(made[0].loss, 6),
            session_id=place.session_id,
            winning_run_dir=str(place.root / f"iter_{k}" / "workspace" / "runs" / best.run_id),
            loss_breakdown=best.parts,
        )
        place.shelf.put(winner, best)


def stop_name(kind: str, message: str) -> str:
    """Why a session ended, in a word of the seed's."""
    if kind == "error" and not message.startswith("error:"):
        return f"error:{kind}"
    if kind == "error":
        return ":".join(message.split(":")[:2])
    return stop_word(message) if kind in ("iterations", "converged") else kind
