"""The page of an agent run: its story, turn by turn, what it left, and the loss with its parts."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from kept.core.words import count
from kept.orchestrator.loss import run_loss
from kept.orchestrator.record import AgentRun, Iteration
from kept.orchestrator.run_folder.files import read_object, text_in
from kept.orchestrator.run_folder.places import COMPLETION
from kept.orchestrator.run_folder.read import read_loss
from kept.orchestrator.telling import end_line
from kept.recipes.agent_run.agent_reading import agent_run_of, delivered_by
from kept.store.glance import Glance
from kept.store.reader import Run
from kept.store.run_index import RunRow
from kept.ui.report.format import duration
from kept.ui.web.charts import meter
from kept.ui.web.figures import figure, money, thousands
from kept.ui.web.kind import Asked, View
from kept.ui.web.loss_bar import LossShown, loss_shown

LONG = 20_000
"""Characters of a deliverable that are shown."""
MANY = 60
"""Turns that are shown, the newest."""

TITLES = {
    "plan": "plans",
    "delegate": "sends workers",
    "complete": "says that it is done",
    "fail": "gives up",
    "diagnose": "looks for the cause",
}


@dataclass(frozen=True, slots=True)
class Left:
    """One file that a run left."""

    path: str
    size: int
    text: str | None
    """None where it is no text."""
    cut: int
    declared: bool


@dataclass(frozen=True, slots=True)
class Axis:
    """How much of a limit is used."""

    words: str
    bar: Markup


@dataclass(frozen=True, slots=True)
class TurnShown:
    """One turn of the manager."""

    one: Iteration
    title: str
    took: float
    refusals: tuple[object, ...]
    repairs: tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Told:
    """A run of agents for people."""

    record: AgentRun
    end: str
    loss: LossShown | None
    turns: tuple[TurnShown, ...]
    left_out: int
    axes: tuple[Axis, ...]
    parts: tuple[tuple[str, str], ...]
    """Subtasks by what became of them."""


def told_of(record: AgentRun) -> Told:
    """A run, how far it may have come."""
    loss = loss_shown(run_loss(record).parts()) if record.status != "running" else None
    turns = [_turn(record, one) for one in record.iterations]
    return Told(
        record,
        end_line(record),
        loss,
        tuple(turns[-MANY:]),
        max(0, len(turns) - MANY),
        tuple(_axes(record)),
        tuple((one.id, _fate(record, one.id)) for one in record.plan),
    )


def _turn(record: AgentRun, one: Iteration) -> TurnShown:
    kind = one.decision.kind if one.decision else ""
    title = TITLES.get(kind, "decides nothing that could be read")
    if one.decision is None and one.delegations:
        title = "is told to repair"
    return TurnShown(
        one,
        title,
        max(0.0, one.ended - one.began),
        tuple(r for r in record.rejections if r.iteration == one.number and not r.completion),
        tuple(r for r in record.repairs if r.iteration == one.number),
    )


def _fate(record: AgentRun, subtask: str) -> str:
    """What came of a part of the plan, by the last worker that had it."""
    sent = [d for one in record.iterations for d in one.delegations if d.subtask_id == subtask]
    if not sent:
        return "not begun"
    last = sent[-1]
    if last.failure is not None:
        return "failed"
    judged = f", critique {figure(last.critique.score)}" if last.critique else ""
    tries = f", {count(len(sent), 'worker')}" if len(sent) > 1 else ""
    return f"done{judged}{tries}"


def _axes(record: AgentRun) -> Iterator[Axis]:
    if record.budget is None:
        return
    used, most = record.budget.used, record.limits
    rows: Sequence[tuple[str, float, float, str]] = (
        ("turns", used.loops, most.loops, f"{used.loops} of {thousands(most.loops)}"),
        ("workers", used.workers, most.workers, f"{used.workers} of {thousands(most.workers)}"),
        (
            "tool calls",
            used.tool_calls,
            most.tool_calls,
            f"{used.tool_calls} of {thousands(most.tool_calls)}",
        ),
        (
            "tokens",
            used.tokens,
            most.tokens,
            f"{thousands(used.tokens)} of {thousands(most.tokens)}",
        ),
        (
            "",
            used.wall_seconds,
            most.wall_seconds,
            f"{duration(used.wall_seconds)} of {duration(most.wall_seconds)}",
        ),
    )
    for name, value, limit, words in rows:
        text = f"{words} {name}".strip()
        yield Axis(text, meter(value / limit if limit > 0 else 1.0, f"{text} used"))
    if most.usd is not None:
        text = f"{money(used.usd)} of {money(most.usd)}"
        yield Axis(text, meter(used.usd / most.usd if most.usd else 1.0, f"{text} used"))


def files_shown(files: Mapping[str, bytes], declared: frozenset[str]) -> list[Left]:
    """What was delivered, as far as a page shows it."""
    return [_left(path, files[path], path in declared) for path in sorted(files)]


def _left(path: str, data: bytes, declared: bool) -> Left:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return Left(path, len(data), None, 0, declared)
    if "\0" in text:
        return Left(path, len(data), None, 0, declared)
    return Left(path, len(data), text[:LONG], max(0, len(text) - LONG), declared)


def body(run: Run, told: Glance, asked: Asked) -> View:
    """What the page of an agent run has besides."""
    record = agent_run_of(run)
    if record is None:
        return {"told": None, "files": []}
    named = frozenset(one.path for one in record.deliverables if one.declared)
    return {"told": told_of(record), "files": files_shown(delivered_by(run), named)}


def headline(run: Run, told: Glance) -> str:
    """How it ended, in a line."""
    record = agent_run_of(run)
    if record is None:
        return "it has not begun"
    # a run that is complete has ended for the reason that it is
    return end_line(record).replace(" (completed)", "")


def result(row: RunRow, folder: Path) -> str:
    """How it reads in the list: as it ended, by the file that it leaves then, with its loss."""
    completion = read_object(folder / COMPLETION)
    if row.best_value is None and (completion is None or row.status == "running"):
        return "no loss yet" if row.status == "running" else "no loss"
    # a run that was cut off has a loss too: its page shows it
    loss = read_loss(folder).total if row.best_value is None else row.best_value
    ended = text_in((completion or {}).get("status"))
    return f"{ended}, loss {figure(loss)}" if ended else f"loss {figure(loss)}"
