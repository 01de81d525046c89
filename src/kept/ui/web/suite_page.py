"""The page of an optimization of prompts: by epoch what was considered, changed and decided."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from kept.core.proposal import Proposal, Skip
from kept.core.schedules.epochs import epoch_of
from kept.orchestrator.loss import first_number
from kept.orchestrator.run_folder.files import rows_in, text_in
from kept.store.glance import Glance
from kept.store.reader import Run
from kept.store.step_index import StepRow, answered_step, closed_step
from kept.ui.web.diffing import side_by_side
from kept.ui.web.kind import Asked, View
from kept.ui.web.run_page import FILTERS, PAGE, is_shown, step_line
from kept.ui.web.step_page import bar_of


@dataclass(frozen=True, slots=True)
class Considered:
    """A change that a model would make to one text."""

    artifact: str
    why: str
    expected: float | None
    confidence: float | None
    chosen: bool


@dataclass(frozen=True, slots=True)
class TaskShown:
    """One task of the suite in one epoch."""

    name: str
    was: float | None
    now: float | None


@dataclass(frozen=True, slots=True)
class EpochShown:
    """One time through the suite."""

    number: int
    line: Mapping[str, object]
    artifact: str
    considered: tuple[Considered, ...]
    tasks: tuple[TaskShown, ...]


def body(run: Run, told: Glance, asked: Asked) -> View:
    """What the page of such a run has besides."""
    wanted = [row for row in reversed(told.rows) if is_shown(row, asked.show)]
    pages = max(1, -(-len(wanted) // PAGE))
    page = min(max(1, asked.page), pages)
    seed, best = run.candidate(told.seed), run.candidate(told.best)
    return {
        "epochs": [_epoch(run, told, row) for row in wanted[(page - 1) * PAGE : page * PAGE]],
        "page": page,
        "pages": pages,
        "show": asked.show,
        "filters": FILTERS,
        "registry": told.fact("registry"),
        "all": told.begun.facts.get("epochs"),
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
