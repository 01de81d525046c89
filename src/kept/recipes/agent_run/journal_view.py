"""Views of an agent run from its journal: record, deliverable, messages, and web page.

The messages and tool calls of managers and workers are verbatim.
"""

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from kept.core.event import Event, RunStopped
from kept.core.llm import Message, ModelReply, ToolAnswer, asked_for
from kept.core.ports import Journal
from kept.core.rollout import Failure, Job, TraceItem
from kept.core.state import State
from kept.core.text import one_line
from kept.orchestrator.coding_agent_worker import STEP, Sent
from kept.orchestrator.events import STORY, Moment, agent_run_json, agent_run_page, record_of
from kept.orchestrator.record import AgentRun
from kept.orchestrator.run_folder.write import Layout, run_files, sweep, write_run
from kept.orchestrator.runner import DELIVERED
from kept.recipes.agent_run.request import Asked
from kept.recipes.registry import request_of
from kept.store import codec
from kept.store.journal import RunJournal
from kept.store.jsonl import left_out
from kept.store.reader import Run

CASE = "task"
"""Id of the only case of an agent run."""

log = logging.getLogger("kept")


def scope_of(run: Run) -> str:
    """Scope of all journal entries of the run's job."""
    return Job(run.state.seed, CASE, 0, "measure").scope


def agent_run_of(run: Run) -> AgentRun | None:
    """Record of a run so far; None before its first moment."""
    record = record_of(run.replies(f"{scope_of(run)}/{STORY}", Moment))
    if record is None:
        return None
    record = replace(record, run_id=run.id)
    if record.status != "running" or run.status == "running":
        return record
    # no moment records the end: the run was interrupted
    stopped = run.state.stopped
    why = run.status if stopped is None or stopped.kind != "error" else stopped.message
    return replace(record, status="aborted", reason=why)


def delivered_by(run: Run) -> Mapping[str, bytes]:
    """Files that a run delivered, by path; empty before it has ended."""
    found = deliveries_of(run)
    return found[-1] if found else {}


def deliveries_of(run: Run) -> Sequence[Mapping[str, bytes]]:
    """Files delivered at each end of the run; a resumed run may have ended before."""
    return [ran.files for _, ran in run.executions([f"{scope_of(run)}/{DELIVERED}"])]


def changed_files(run: Run) -> Sequence[str]:
    """Files of an agent run, beside its journal, that differ from what was written."""
    record = agent_run_of(run) if request_of(run, Asked) else None
    if record is None or run.status == "running":
        return ()
    made = run_files(record, delivered_by(run), Layout())
    return [
        path
        for path, data in made.items()
        if (run.folder / path).is_file() and (run.folder / path).read_bytes() != data
    ]


class RunFolder:
    """Sink that writes the folder of a run, in the source's layout, when a session ends.

    It is only a view: all of it can be rebuilt from the journal beside it.
    """

    def __init__(self, journal: Journal) -> None:
        self._folder = journal.folder if isinstance(journal, RunJournal) else None

    def on_event(self, event: Event, state: State) -> None:
        """Write the folder when the run stops."""
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


MANAGER = "manager"

_PLACE = re.compile(
    r"turn-(?P<turn>\d+)/(?P<above>workers/.*/)?"
    r"(?P<what>manager|works/say-\d+|works/errand-\d+|works/say-\d+/tools-\d+/\d+-(?P<tool>[^/]+)|critic)"
)
"""Path of a reply below the scope of its run; other paths belong to no conversation."""


@dataclass(frozen=True, slots=True)
class Spoken:
    """One message or tool call."""

    turn: int
    """Turn of the top manager."""
    who: str
    """Speaker: a worker, a worker's critic, or the manager; with the names of those above."""
    item: TraceItem


def people_of(record: AgentRun) -> list[str]:
    """Manager and workers of a run, in the order of their first appearance."""
    sent = [one.worker_id for turn in record.iterations for one in turn.delegations]
    return list(dict.fromkeys((MANAGER, *sent)))


def spoken(run: Run, who: str) -> list[Spoken]:
    """Messages and tool calls of one speaker and its critic; of all for the case's name.

    Sorted by turn, then by speaker, as speakers of one turn act at the same time.
    """
    rows = list(_spoken(run, who))
    order = {name: n for n, name in enumerate(dict.fromkeys(row.who for row in rows))}
    return sorted(rows, key=lambda row: (row.turn, order[row.who]))


def _spoken(run: Run, who: str) -> Iterator[Spoken]:
    for scope, raw, failed in run.calls_below(scope_of(run)):
        place = _PLACE.fullmatch(scope)
        if place is None:
            continue
        names = re.findall(r"workers/([^/]+)/", scope)
        if who not in (CASE, *names) and (who != MANAGER or names):
            continue
        speaker = "/".join(names) or MANAGER
        if place["what"] in (MANAGER, "critic") and names:
            speaker = f"{place['what']} of {speaker}"
        try:
            items = [*_items(place["what"], place["tool"], raw, failed)]
        except ValueError as error:
            where = b'"scope":' + codec.encode(f"{scope_of(run)}/{scope}")
            left_out(run.folder / "rollouts.jsonl", where, error)
            continue
        for item in items:
            yield Spoken(int(place["turn"]), speaker, item)


def spoken_json(rows: list[Spoken]) -> list[dict[str, Any]]:
    """Messages and tool calls as JSON."""
    return [{"turn": row.turn, "who": row.who, **asdict(row.item)} for row in rows]


def _items(what: str, tool: str | None, raw: bytes, failed: bool) -> Iterator[TraceItem]:
    if failed:
        failure = codec.decode(raw, Failure)
        yield TraceItem("failure", f"{failure.kind}: {failure.message}")
    elif tool is not None:
        answer = codec.decode(raw, ToolAnswer)
        yield TraceItem("tool", answer.text, {"name": tool, "changed": sorted(answer.changes)})
    elif "errand" in what:
        yield from _errand(codec.decode(raw, Sent))
    else:
        reply = codec.decode(raw, ModelReply)
        said = Message("assistant", reply.text, tool_calls=reply.tool_calls)
        yield asked_for(said) if reply.tool_calls else TraceItem("assistant", reply.text)


def _errand(sent: Sent) -> Iterator[TraceItem]:
    """Steps of an agent CLI and its answer, which is mostly also its last step."""
    steps = [line.partition(": ") for line in sent.story.splitlines()]
    if steps and steps[-1][2] == one_line(sent.text, STEP):
        steps.pop()
    yield from (TraceItem(role, text) for role, _, text in steps)
    yield TraceItem("assistant", sent.text, {"changed": sorted(sent.changes)})


def agent_run_report(run: Run) -> str:
    """Page of a run so far."""
    record = agent_run_of(run)
    return agent_run_page(record) if record else f"# Agent run {run.id}\n\nIt never began.\n"


def agent_run_document(run: Run) -> dict[str, Any]:
    """JSON document of a run so far."""
    record = agent_run_of(run)
    return agent_run_json(record) if record else {"status": run.status}
