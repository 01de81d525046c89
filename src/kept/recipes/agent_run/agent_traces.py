"""What managers and workers of an agent run said and used, word for word, as its journal has it."""

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from kept.core.exchange import asked_for
from kept.core.model import Message, ModelReply
from kept.core.rollout import Failure, TraceItem
from kept.core.tool import ToolAnswer
from kept.core.words import one_line
from kept.orchestrator.coding_agent_worker import STEP, Sent
from kept.orchestrator.record import AgentRun
from kept.recipes.agent_run.agent_reading import CASE, scope_of
from kept.store import wire
from kept.store.damage import left_out
from kept.store.reader import Run

MANAGER = "manager"

_PLACE = re.compile(
    r"turn-(?P<turn>\d+)/(?P<above>workers/.*/)?"
    r"(?P<what>manager|works/say-\d+|works/errand-\d+|works/say-\d+/tools-\d+/\d+-(?P<tool>[^/]+)|critic)"
)
"""Where a reply stands below the scope of its run; what is no part of a conversation is nowhere."""


@dataclass(frozen=True, slots=True)
class Spoken:
    """One thing that somebody said or used."""

    turn: int
    """Of the manager at the top."""
    who: str
    """A worker, a worker's critic, or the manager; with the names of those above it."""
    item: TraceItem


def people_of(record: AgentRun) -> list[str]:
    """Who can be asked for, in the order in which they came."""
    sent = [one.worker_id for turn in record.iterations for one in turn.delegations]
    return list(dict.fromkeys((MANAGER, *sent)))


def spoken(run: Run, who: str) -> list[Spoken]:
    """All that one of them said and used, and its critic; with the name of the case, everybody.

    By turns, and by who spoke: those of one turn spoke at the same time.
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
            where = b'"scope":' + wire.encode(f"{scope_of(run)}/{scope}")
            left_out(run.folder / "rollouts.jsonl", where, error)
            continue
        for item in items:
            yield Spoken(int(place["turn"]), speaker, item)


def spoken_json(rows: list[Spoken]) -> list[dict[str, Any]]:
    """The same as a document."""
    return [{"turn": row.turn, "who": row.who, **asdict(row.item)} for row in rows]


def _items(what: str, tool: str | None, raw: bytes, failed: bool) -> Iterator[TraceItem]:
    if failed:
        failure = wire.decode(raw, Failure)
        yield TraceItem("failure", f"{failure.kind}: {failure.message}")
    elif tool is not None:
        answer = wire.decode(raw, ToolAnswer)
        yield TraceItem("tool", answer.text, {"name": tool, "changed": sorted(answer.changes)})
    elif "errand" in what:
        yield from _errand(wire.decode(raw, Sent))
    else:
        reply = wire.decode(raw, ModelReply)
        said = Message("assistant", reply.text, tool_calls=reply.tool_calls)
        yield asked_for(said) if reply.tool_calls else TraceItem("assistant", reply.text)


def _errand(sent: Sent) -> Iterator[TraceItem]:
    """What an agent CLI did, step by step, and its answer; mostly that is its last step, too."""
    steps = [line.partition(": ") for line in sent.story.splitlines()]
    if steps and steps[-1][2] == one_line(sent.text, STEP):
        steps.pop()
    yield from (TraceItem(role, text) for role, _, text in steps)
    yield TraceItem("assistant", sent.text, {"changed": sorted(sent.changes)})
