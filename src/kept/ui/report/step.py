"""Steps and rollouts as JSON documents, and export of the files that programs left."""

import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kept.core.proposal import proposal_scope
from kept.errors import SetupError
from kept.results.steps import StepDetail, StepRollout
from kept.store.candidate_files import write_below
from kept.store.reader import Run
from kept.ui.report.json import step_row


def step_json(detail: StepDetail) -> dict[str, Any]:
    """Complete step as a document."""
    head = step_row(detail.row) if detail.row else {"step": detail.step, "verdict": None}
    return {
        **head,
        "turn": asdict(detail.turn),
        "prompt": detail.prompt or None,
        "reply": detail.reply,
        "edits": [
            {"edit": asdict(e.edit), "fate": e.fate, "detail": e.detail} for e in detail.edits
        ],
        "proposing": [asdict(item) for item in detail.proposing],
        "diff": detail.diff,
        "stages": {stage.name: {"t": stage.t, "what": stage.what} for stage in detail.stages},
        "rollouts": [rollout_json(rollout) for rollout in detail.rollouts],
    }


def rollout_json(rollout: StepRollout) -> dict[str, Any]:
    """Rollout as a document."""
    job, outcome = rollout.job, rollout.outcome
    return {
        "candidate": job.candidate_id,
        "side": rollout.side,
        "purpose": job.purpose,
        "case": job.case_id,
        "repeat": job.repeat,
        "metrics": dict(outcome.metrics),
        "failure": asdict(outcome.failure) if outcome.failure else None,
        "findings": [asdict(finding) for finding in outcome.findings],
        "usage": asdict(outcome.usage),
        "seconds": outcome.seconds,
        "tries": outcome.tries,
        "trace": [asdict(item) for item in rollout.trace],
    }


def case_json(rollouts: tuple[StepRollout, ...]) -> list[dict[str, Any]]:
    """Rollouts of a case as documents."""
    return [rollout_json(rollout) for rollout in rollouts]


OUTPUT = "output.txt"


def save_left(run: Run, detail: StepDetail, folder: Path) -> int:
    """Write a folder for the proposal and for each rollout; return the number of folders.

    Each holds the files that were left, and the final output in `output.txt`. Functions and models
    leave no files.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise SetupError(
            f"{folder} is there already", hint="name a folder that is not, or is empty"
        )
    names = {
        rollout.job.scope: f"{rollout.side}-{rollout.job.purpose}-{rollout.job.case_id}"
        f"-{rollout.job.repeat}"
        for rollout in detail.rollouts
    }
    names[proposal_scope(detail.step)] = "proposal"
    # of several tries the last one counts
    found = dict(run.executions(names))
    try:
        for scope, rollout in found.items():
            files = {**rollout.files, OUTPUT: rollout.output.encode("utf-8", "surrogateescape")}
            write_below(folder / re.sub(r"[^\w.-]", "_", names[scope]), files)
    except OSError as error:
        raise SetupError(f"cannot write to {folder}: {error.strerror}") from error
    return len(found)
