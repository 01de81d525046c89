"""What the programs of a step left behind, written to a folder for a person to look at."""

import re
from pathlib import Path

from kept.core.proposal import proposal_scope
from kept.errors import SetupError
from kept.store.files import write_below
from kept.store.reader import Run
from kept.ui.report.step import StepDetail

OUTPUT = "output.txt"


def save_left(run: Run, detail: StepDetail, folder: Path) -> int:
    """Write a folder for the proposal and for each rollout; how many that were.

    Each has the files that were left and, in `output.txt`, what was said in the end. Functions and
    models leave nothing.
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
    # of several tries the last
    found = dict(run.executions(names))
    try:
        for scope, rollout in found.items():
            files = {**rollout.files, OUTPUT: rollout.output.encode("utf-8", "surrogateescape")}
            write_below(folder / re.sub(r"[^\w.-]", "_", names[scope]), files)
    except OSError as error:
        raise SetupError(f"cannot write to {folder}: {error.strerror}") from error
    return len(found)
