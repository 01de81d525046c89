"""Refinements of a task of an experiment: their sessions below it, their best as its best.

refinements/session_<ts>/session.json   a session, with its iterations beside it
refinements/session_<ts>.json           the same, where a list of sessions is read
refinements/session.json                which one is the latest
"""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kept.core.text import encoded
from kept.orchestrator.folders import Task
from kept.orchestrator.refine.best import Held, Winner, alone, recover
from kept.orchestrator.refine.made import Made
from kept.orchestrator.refine.session import Session, free_name, session_stamp
from kept.orchestrator.tasks import Entry, held_by, offer, take_back
from kept.store.files import write_whole

SESSION = "session.json"


def sessions_of(task: Task) -> Path:
    """The folder of the sessions of a task."""
    return task.folder / "refinements"


def new_task_session(task: Task, t: float) -> str:
    """A name that no session of a task has: two may begin in one second."""
    name = datetime.fromtimestamp(t, UTC).strftime("session_%Y%m%d_%H%M%S")
    return free_name(name, (), sessions_of(task))


@dataclass(frozen=True, slots=True)
class InTask:
    """Implements `kept.orchestrator.refine.folder.Shelf`."""

    task: Task
    seed: Path
    """The run that is refined, which was its best."""

    def write(self, session: Session) -> None:
        """The session, twice, and the pointer to the latest."""
        folder, name = sessions_of(self.task), session.session_id
        whole = session.document()
        _write(folder / name / SESSION, whole)
        _write(folder / f"{name}.json", whole)
        latest = {
            "latest": name,
            "path": f"{name}/{SESSION}",
            "started_at": session.started_at,
            "completed_at": session.completed_at,
            "stop_reason": session.stop_reason,
        }
        _write(folder / SESSION, latest)

    def put(self, winner: Winner, made: Made) -> None:
        """In BEST of the task, where it has a strictly lower loss and nobody chose another."""
        entry = Entry(
            run_id=winner.best_run_id,
            source=winner.winning_run_dir,
            status=made.status,
            loss=winner.best_loss,
            parts=winner.loss_breakdown,
            signals=made.findings.signals,
            files=made.files,
            measure=winner.measure,
            seed_run_id=winner.start_run_id or winner.seed_run_id,
            seed_loss=winner.seed_loss if winner.start_loss is None else winner.start_loss,
            session=winner.session_id,
        )
        offer(self.task, entry, _now())

    def withdraw(self, session: str, measure: str) -> None:
        """The best of the task is then what it was before."""
        take_back(self.task, session, measure, self.seed, _now())

    def holds(self) -> Held | None:
        """What BEST of the task holds."""
        return held_by(self.task)

    def recover(self) -> None:
        """After a kill."""
        with alone(self.task.folder):
            recover(self.task.folder)


def _now() -> str:
    return session_stamp(datetime.now(UTC).timestamp())


def _write(path: Path, value: dict[str, Any]) -> None:
    text = json.dumps(value, indent=2, ensure_ascii=False)
    write_whole(path, encoded(text) + b"\n")
