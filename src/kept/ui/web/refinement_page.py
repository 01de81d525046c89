"""The page of a refinement: each iteration with its models, its loss in parts, and its story."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from kept.core.plan import REFINE
from kept.core.proposal import Proposal, Skip, proposal_scope
from kept.core.schedules.refine import iterations_in, reruns, unread
from kept.orchestrator.refine.folder import Told as Judged
from kept.orchestrator.refine.ledger import counted_words
from kept.orchestrator.refine.made import all_made, made_of
from kept.orchestrator.story import STORY, Moment, record_of
from kept.recipes.refine.refine import Refinement
from kept.store.glance import Glance
from kept.store.reader import Run
from kept.store.step_index import StepRow, answered_step
from kept.ui.web.agent_page import Told, told_of
from kept.ui.web.kind import Asked, View
from kept.ui.web.loss_bar import LossShown, loss_shown


@dataclass(frozen=True, slots=True)
class IterationShown:
    """One iteration that has ended."""

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
    """The mean of the readings of what it left; None where it was not raced, or not read."""
    unread: bool = False
    """Whether its readings had no answer, so that nobody can tell what it is worth."""


@dataclass(frozen=True, slots=True)
class Now:
    """The iteration that goes on."""

    k: int
    n: int
    """Iterations that its session may have."""
    step: int
    tier: str
    told: Told | None
    """How far it has come; None before its manager has said anything."""


def body(run: Run, told: Glance, asked: Asked) -> View:
    """What the page of a refinement has besides."""
    wanted = Refinement.of(told.begun.facts[REFINE])
    seed = made_of(run.candidate(told.seed).texts)
    state = run.state
    known = Judged(state, all_made(run.candidate(told.seed), reruns(state)))
    lost = frozenset(unread(reruns(state)))
    at = {row.step: row for row in told.rows}
    # of one that was judged again, the last: the step before it came to nothing
    rows = (_iteration(run, at[one.step], one.k, known) for one in known.attempts if one.step in at)
    found = [replace(one, unread=one.k in lost) for one in rows if one is not None]
    losses = [seed.loss, *(one.loss.total for one in found if one.loss)]
    widest = max(losses) * 1.05
    seed_loss = loss_shown(seed.parts, widest)
    return {
        "asked": wanted,
        "tiered": not wanted.tiers.trivial,
        "seed_run": told.fact("seed_run"),
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
    """The iteration that goes on; None where none does."""
    if not told.open or told.status != "running":
        return None
    one = told.open[0]
    settings = one.turn.settings
    k = settings.get("k")
    story = story_of(run, one.step)
    return Now(
        k if isinstance(k, int) else one.step + 1,
        iterations_in(told.begun.facts),
        one.step,
        str(settings.get("tier") or ""),
        story,
    )


def step(run: Run, number: int, view: View) -> View:
    """A step as an iteration, with its story."""
    story = story_of(run, number) or story_of(run, _ran_in(run, number))
    return {**view, "story": story}


def _ran_in(run: Run, number: int) -> int:
    """The step in which an iteration ran, where this one only judged it again."""
    steps = [*run.state.closed, *run.state.open]
    turns = {one.step: (one.turn.proposer, one.turn.number) for one in steps}
    return min((one for one in turns if turns[one] == turns.get(number)), default=number)


def story_of(run: Run, step: int) -> Told | None:
    """What happened in an iteration so far; None before anything did."""
    record = record_of(run.replies(f"{proposal_scope(step)}/run/{STORY}", Moment))
    return told_of(record) if record is not None else None
