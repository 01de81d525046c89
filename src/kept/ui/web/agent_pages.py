"""Pages of agent runs, refinements and prompt optimizations.

An agent run shows its story turn by turn, its output, and the loss with its parts. A refinement
shows the models, loss parts and story of each iteration. An optimization shows proposals, changes
and decisions by epoch.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from markupsafe import Markup

from kept.core.proposal import Proposal, Skip, proposal_scope
from kept.core.schedules.refine import iterations_in, reruns, unread
from kept.core.text import count
from kept.core.turns import epoch_of
from kept.orchestrator.events import STORY, Moment, end_line, record_of
from kept.orchestrator.loss import first_number, run_loss
from kept.orchestrator.record import AgentRun, Iteration
from kept.orchestrator.refine.attempt import all_made, counted_words, made_of
from kept.orchestrator.refine.session import Told as Judged
from kept.orchestrator.run_folder.read import COMPLETION, read_loss, read_object, rows_in, text_in
from kept.recipes.agent_run.journal_view import agent_run_of, delivered_by
from kept.recipes.refine.request import Refinement, RefinementFacts
from kept.recipes.registry import facts_of, request_of
from kept.recipes.suite.request import SuiteFacts
from kept.store.overview import Glance
from kept.store.reader import Run
from kept.store.run_index import RunRow
from kept.store.step_index import StepRow, answered_step, closed_step
from kept.ui.report.format import duration
from kept.ui.web.charts import LossShown, loss_shown, meter
from kept.ui.web.run_page import FILTERS, PAGE, Asked, View, is_shown, step_line
from kept.ui.web.step_page import bar_of, side_by_side
from kept.ui.web.templates import figure, money, thousands

LONG = 20_000
"""Maximum characters shown of a deliverable."""
MANY = 60
"""Maximum number of turns shown, the newest."""

TITLES = {
    "plan": "plans",
    "delegate": "sends workers",
    "complete": "says that it is done",
    "fail": "gives up",
    "diagnose": "looks for the cause",
}


@dataclass(frozen=True, slots=True)
class Left:
    """A file that a run left."""

    path: str
    size: int
    text: str | None
    """Text of the file; None for a binary file."""
    cut: int
    declared: bool


@dataclass(frozen=True, slots=True)
class Axis:
    """Share of a limit that is used."""

    words: str
    bar: Markup


@dataclass(frozen=True, slots=True)
class TurnShown:
    """A turn of the manager."""

    one: Iteration
    title: str
    took: float
    refusals: tuple[object, ...]
    repairs: tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Told:
    """A run of agents in display form."""

    record: AgentRun
    end: str
    loss: LossShown | None
    turns: tuple[TurnShown, ...]
    left_out: int
    axes: tuple[Axis, ...]
    parts: tuple[tuple[str, str], ...]
    """Subtasks, each with its result."""


def told_of(record: AgentRun) -> Told:
    """Display form of a run, whether or not it has ended."""
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
    """Result of a subtask, by the last worker that had it."""
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


def _left(path: str, data: bytes, declared: bool) -> Left:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return Left(path, len(data), None, 0, declared)
    if "\0" in text:
        return Left(path, len(data), None, 0, declared)
    return Left(path, len(data), text[:LONG], max(0, len(text) - LONG), declared)


def agent_body(run: Run, told: Glance, asked: Asked) -> View:
    """Template values of an agent run's page."""
    record = agent_run_of(run)
    if record is None:
        return {"told": None, "files": []}
    named = frozenset(one.path for one in record.deliverables if one.declared)
    files = delivered_by(run)
    shown = [_left(path, files[path], path in named) for path in sorted(files)]
    return {"told": told_of(record), "files": shown}


def headline(run: Run, told: Glance) -> str:
    """End of the run in one line."""
    record = agent_run_of(run)
    if record is None:
        return "it has not begun"
    # `complete` and `(completed)` would say the same twice
    return end_line(record).replace(" (completed)", "")


def result(row: RunRow, folder: Path) -> str:
    """Result in the list of runs: completion status and loss."""
    completion = read_object(folder / COMPLETION)
    if row.best_value is None and (completion is None or row.status == "running"):
        return "no loss yet" if row.status == "running" else "no loss"
    # a run that was cut off has a loss too, as on its page
    loss = read_loss(folder).total if row.best_value is None else row.best_value
    ended = text_in((completion or {}).get("status"))
    return f"{ended}, loss {figure(loss)}" if ended else f"loss {figure(loss)}"


@dataclass(frozen=True, slots=True)
class IterationShown:
    """A finished iteration."""

    k: int
    step: int
    run: str
    status: str
    tier: str
    manager: str
    worker: str
    loss: LossShown | None
    best: bool
    why: str
    read: float | None
    """Mean of the readings of its deliverables; None without a race or without readings."""
    unread: bool = False
    """True if its readings had no answer, so that its value is unknown."""


@dataclass(frozen=True, slots=True)
class Now:
    """The iteration that is running."""

    k: int
    n: int
    """Maximum number of iterations of its session."""
    step: int
    tier: str
    told: Told | None
    """Its story so far; None before the manager's first decision."""


def refinement_body(run: Run, told: Glance, asked: Asked) -> View:
    """Template values of a refinement's page."""
    wanted, facts = request_of(told, Refinement), facts_of(told, RefinementFacts)
    assert wanted is not None and facts is not None, "a refinement"
    seed = made_of(run.candidate(told.seed).texts)
    state = run.state
    known = Judged(state, all_made(run.candidate(told.seed), reruns(state)))
    lost = frozenset(unread(reruns(state)))
    at = {row.step: row for row in told.rows}
    # of an iteration that was judged again, the last step counts: the earlier one came to nothing
    rows = (_iteration(run, at[one.step], one.k, known) for one in known.attempts if one.step in at)
    found = [replace(one, unread=one.k in lost) for one in rows if one is not None]
    losses = [seed.loss, *(one.loss.total for one in found if one.loss)]
    widest = max(losses) * 1.05
    seed_loss = loss_shown(seed.parts, widest)
    return {
        "asked": wanted,
        "tiered": not wanted.tiers.trivial,
        "seed_run": facts.seed_run,
        "seed_loss": seed_loss,
        "seed_parts": loss_shown(known.parts(told.seed), widest),
        "findings": seed.findings,
        "ledger": known.ledger,
        "counted": {one.k: counted_words(known.ledger, one.k) for one in known.attempts},
        "from_best": bool(wanted.start),
        "start_run": seed.run_id,
        "iterations": [_on(one, widest) for one in found],
        "now": now_of(run, told),
        "raced": known.raced,
        "noise": known.noise.words if known.noise else "",
        "seed_read": _read(known, told.seed),
        "best_iter": known.best_iter,
        "best_at": next((one.step for one in found if one.best), None),
    }


def _read(known: Judged, candidate: str | None) -> float | None:
    read = known.readings(candidate) if candidate else None
    return read.loss if read is not None else None


def _on(one: IterationShown, widest: float) -> IterationShown:
    if one.loss is None:
        return one
    parts = {"total": one.loss.total, **{part.name: part.value for part in one.loss.parts}}
    return replace(one, loss=loss_shown(parts, widest))


def _iteration(run: Run, row: StepRow, k: int, known: Judged) -> IterationShown | None:
    answer = answered_step(run.folder, row)
    reply = answer.reply if answer else None
    if not isinstance(reply, Proposal | Skip) or "run_id" not in reply.about:
        return None
    about = cast("Mapping[str, Any]", reply.about)
    return IterationShown(
        k,
        row.step,
        about["run_id"],
        about["status"],
        about["tier"] or "",
        about["manager"] or "",
        about["worker"] or "",
        loss_shown(about["loss"]),
        k == known.best_iter,
        row.reason,
        (_read(known, row.candidate) or row.measured) if known.raced else None,
    )


def now_of(run: Run, told: Glance) -> Now | None:
    """The running iteration; None if there is none."""
    if not told.open or told.status != "running":
        return None
    one = told.open[0]
    settings = one.turn.settings
    k = settings.get("k")
    story = story_of(run, one.step)
    return Now(
        k if isinstance(k, int) else one.step + 1,
        iterations_in(told.begun.request),
        one.step,
        str(settings.get("tier") or ""),
        story,
    )


def step(run: Run, number: int, view: View) -> View:
    """Template values of a step as an iteration, with its story."""
    story = story_of(run, number)
    if not story:
        # an iteration that was only judged again here: use the step in which it ran
        steps = [*run.state.history, *run.state.open]
        turns = {one.step: (one.turn.proposer, one.turn.number) for one in steps}
        same = (one for one in turns if turns[one] == turns.get(number))
        story = story_of(run, min(same, default=number))
    return {**view, "story": story}


def story_of(run: Run, step: int) -> Told | None:
    """Story of an iteration so far; None before its first event."""
    record = record_of(run.replies(f"{proposal_scope(step)}/run/{STORY}", Moment))
    return told_of(record) if record is not None else None


@dataclass(frozen=True, slots=True)
class Considered:
    """A change that a model considered for one text."""

    artifact: str
    why: str
    expected: float | None
    confidence: float | None
    chosen: bool


@dataclass(frozen=True, slots=True)
class TaskShown:
    """A task of the suite in one epoch."""

    name: str
    was: float | None
    now: float | None


@dataclass(frozen=True, slots=True)
class EpochShown:
    """One pass through the suite."""

    number: int
    line: Mapping[str, object]
    artifact: str
    considered: tuple[Considered, ...]
    tasks: tuple[TaskShown, ...]


def suite_body(run: Run, told: Glance, asked: Asked) -> View:
    """Template values of a prompt optimization's page."""
    wanted = [row for row in reversed(told.rows) if is_shown(row, asked.show)]
    pages = max(1, -(-len(wanted) // PAGE))
    page = min(max(1, asked.page), pages)
    seed, best = run.candidate(told.seed), run.candidate(told.best)
    facts = facts_of(told, SuiteFacts)
    assert facts is not None, "a run that optimizes prompts"
    return {
        "epochs": [_epoch(run, told, row) for row in wanted[(page - 1) * PAGE : page * PAGE]],
        "page": page,
        "pages": pages,
        "show": asked.show,
        "filters": FILTERS,
        "registry": facts.registry,
        "all": facts.epochs,
        "changes": side_by_side(seed.texts, best.texts) if told.best != told.seed else [],
    }


def _epoch(run: Run, told: Glance, row: StepRow) -> EpochShown:
    answer = answered_step(run.folder, row)
    reply = answer.reply if answer else None
    about = cast("Mapping[str, Any]", reply.about if isinstance(reply, Proposal | Skip) else {})
    artifact = text_in(about.get("artifact"))
    return EpochShown(
        epoch_of(row.phase) or row.step + 1,
        step_line(row, told),
        artifact,
        tuple(_considered(rows_in(about.get("considered")), artifact)),
        tuple(_tasks(run, told, row)),
    )


def _considered(rows: Iterable[Mapping[str, Any]], chosen: str) -> Iterator[Considered]:
    for one in rows:
        name = text_in(one.get("artifact"))
        yield Considered(
            name,
            text_in(one.get("rationale")),
            first_number(one.get("expected_loss_reduction")),
            first_number(one.get("confidence")),
            name == chosen,
        )


def _tasks(run: Run, told: Glance, row: StepRow) -> Iterator[TaskShown]:
    closed = closed_step(run.folder, row)
    mine = next(
        (e for e in closed.evaluations if (e.candidate, e.purpose) == (row.candidate, "decide")),
        None,
    )
    if mine is None:
        return
    theirs = bar_of(told, closed, "decide")[0]
    for name, tally in mine.cases.items():
        before = theirs.cases.get(name) if theirs else None
        yield TaskShown(name, told.value(before.mean) if before else None, told.value(tally.mean))
