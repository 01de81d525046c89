"""An agent run as its journal tells it: the record, and what was delivered."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

from kept.core.event import Event, RunStopped
from kept.core.plan import AGENT_RUN
from kept.core.ports import Journal
from kept.core.rollout import Job
from kept.core.state import State
from kept.orchestrator.record import AgentRun
from kept.orchestrator.run_folder.write import Layout, run_files, sweep, write_run
from kept.orchestrator.runner import DELIVERED
from kept.orchestrator.story import STORY, Moment, record_of
from kept.store.journal import RunJournal
from kept.store.reader import Run

CASE = "task"
"""The one case of an agent run."""

log = logging.getLogger("kept")


def scope_of(run: Run) -> str:
    """Where all that happened in it is journalled."""
    return Job(run.state.seed, CASE, 0, "measure").scope


def agent_run_of(run: Run) -> AgentRun | None:
    """The record of a run, how far it may have come; None before its first moment."""
    record = record_of(run.replies(f"{scope_of(run)}/{STORY}", Moment))
    if record is None:
        return None
    record = replace(record, run_id=run.id)
    if record.status != "running" or run.status == "running":
        return record
    # no moment says so: it was cut off
    stopped = run.state.stopped
    why = run.status if stopped is None or stopped.kind != "error" else stopped.message
    return replace(record, status="aborted", reason=why)


def delivered_by(run: Run) -> Mapping[str, bytes]:
    """The files that a run left, by path; none before it has ended."""
    found = deliveries_of(run)
    return found[-1] if found else {}


def deliveries_of(run: Run) -> Sequence[Mapping[str, bytes]]:
    """The files that it left each time that it ended: one that was gone on with ended before."""
    return [ran.files for _, ran in run.executions([f"{scope_of(run)}/{DELIVERED}"])]


def changed_files(run: Run) -> Sequence[str]:
    """Files of an agent run, laid out beside its journal, that are not as they were written."""
    record = agent_run_of(run) if run.recipe == AGENT_RUN else None
    if record is None or run.status == "running":
        return ()
    made = run_files(record, delivered_by(run), Layout())
    return [
        path
        for path, data in made.items()
        if (run.folder / path).is_file() and (run.folder / path).read_bytes() != data
    ]


class RunFolder:
    """Writes the folder of the run as the source lays it out, when a sitting ends; a sink.

    Only a view: all of it can be made again from the journal beside it.
    """

    def __init__(self, journal: Journal) -> None:
        self._folder = journal.folder if isinstance(journal, RunJournal) else None

    def on_event(self, event: Event, state: State) -> None:
        """Write it at the end."""
        if not isinstance(event, RunStopped) or self._folder is None:
            return
        try:
            with Run(self._folder) as run:
                record = agent_run_of(run)
                if record is not None:
                    sweep(self._folder, record.run_id, deliveries_of(run)[:-1], Layout())
                    write_run(self._folder, record, delivered_by(run), Layout())
        except OSError as error:
            log.warning("cannot write %s: %s", error.filename, error.strerror)
