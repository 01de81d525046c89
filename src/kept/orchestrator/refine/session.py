"""The record of a refinement beside its seed run; there from the start, and true at any moment.

A view: all that it says stands in the journal of the refinement.
"""

import json
from collections.abc import Collection
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import chain, count
from pathlib import Path
from typing import Any

from kept.core.schedules.refine import Attempt
from kept.core.text import encoded
from kept.orchestrator.refine.ledger import Line
from kept.orchestrator.refine.rescore import Noise
from kept.store.files import write_whole

SESSIONS = "refinement_sessions"


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A refinement of one seed run."""

    session_id: str
    seed_run_id: str
    started_at: str
    completed_at: str | None = None
    stop_reason: str | None = None
    best_iter: int = 0
    """0 while the seed is the best."""
    iterations: tuple[Attempt, ...] = ()
    tier_plan_used: bool | None = None
    seed_loss: float | None = None
    start_run_id: str = ""
    """The run that it started from: the seed run, or what BEST held when it began."""
    start_loss: float | None = None
    gate: str = "follow"
    noise: Noise | None = None
    """How much the loss of one reading says; None where nobody measured it."""
    findings: tuple[Line, ...] = ()
    """The ledger of findings."""

    def document(self) -> dict[str, Any]:
        """As the source writes it, and the parts of each loss."""
        return {
            "session_id": self.session_id,
            "seed_run_id": self.seed_run_id,
            "started_at": self.started_at,
            "completed_at": self.completed_at,
            "stop_reason": self.stop_reason,
            "best_iter": self.best_iter,
            "iterations": [_row(one, self.gate) for one in self.iterations],
            "tier_plan_used": self.tier_plan_used,
            "seed_loss": self.seed_loss,
            "start_run_id": self.start_run_id or self.seed_run_id,
            "start_loss": self.seed_loss if self.start_loss is None else self.start_loss,
            "gate": self.gate,
            "noise": None if self.noise is None else asdict(self.noise),
            "findings": [one.document() for one in self.findings],
        }


def _row(one: Attempt, gate: str) -> dict[str, Any]:
    return {
        "k": one.k,
        "run_id": one.run_id,
        "loss": one.loss,
        "status": one.status,
        "tier": one.tier,
        "model_manager": one.model_manager,
        "model_worker": one.model_worker,
        "loss_breakdown": dict(one.loss_breakdown),
        "parent_run_id": one.parent_run_id or None,
        "measured_loss": None if gate == "follow" else one.measured,
        "step": one.step,
    }


def session_name(t: float) -> str:
    """The name of a session that begins at this second."""
    return datetime.fromtimestamp(t, UTC).strftime("refine_%Y%m%dT%H%M%SZ")


def free_name(name: str, taken: Collection[str], below: Path) -> str:
    """A name that is not taken, and has no folder; the first of a row of them."""
    numbers = (f"{name}_{n}" for n in count(2))
    return next(
        one for one in chain((name,), numbers) if one not in taken and not (below / one).exists()
    )


def session_stamp(t: float) -> str:
    """A moment, as a session writes it."""
    return datetime.fromtimestamp(t, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def write_session(seed: Path, session: Session) -> Path:
    """Write it beside its seed run, whole or not at all; where."""
    path = seed / SESSIONS / f"{session.session_id}.json"
    write_whole(path, session_bytes(session), seed)
    return path


def session_bytes(session: Session) -> bytes:
    """The file of a session."""
    text = json.dumps(session.document(), indent=2, ensure_ascii=False)
    return encoded(text) + b"\n"
