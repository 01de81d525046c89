"""The page of a training: epoch by epoch what was seen, proposed, chosen, applied and decided."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from markupsafe import Markup

from kept.core.proposal import Note, Proposal, Reply, Skip
from kept.core.schedules.epochs import STEP, epoch_of
from kept.core.words import count
from kept.store.glance import Glance
from kept.store.reader import Run
from kept.store.step_index import StepRow, answered_step, closed_step, opened_step
from kept.ui.web.charts import score_chart
from kept.ui.web.diffing import side_by_side
from kept.ui.web.kind import Asked, View
from kept.ui.web.run_page import FILTERS, PAGE, is_shown, step_line

MOST = 300
"""Steps whose train scores are drawn."""
_NOTHING: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True)
class StepShown:
    """A step of a training."""

    line: Mapping[str, object]
    name: str
    """`step 2`, or what an epoch ends with."""
    hard: float | None
    """Of the batch, with the skill as it was."""
    seen: int | None
    proposed: int
    merged: int
    chosen: int
    cap: int | None
    fates: str
    lost: bool
    """Whether an edit did not come to be."""
    note: str


@dataclass(frozen=True, slots=True)
class Epoch:
    """Steps that go once through the train cases."""

    number: int
    steps: tuple[StepShown, ...]
    kept: int
    edits: str


def body(run: Run, told: Glance, asked: Asked) -> View:
    """What the page of a training has besides."""
    every = [row for row in told.rows if epoch_of(row.phase)]
    inside = [row for row in every if is_shown(row, asked.show)]
    pages = max(1, -(-len(inside) // PAGE))
    # a page is a stretch of steps in order; the newest are shown unless others are asked for
    page = min(max(1, asked.page), pages)
    end = len(inside) - (page - 1) * PAGE
    rows = inside[max(0, end - PAGE) : end]
    seed, best = run.candidate(told.seed), run.candidate(told.best)
    return {
        "epochs": _epochs(run, told, rows),
        "page": page,
        "pages": pages,
        "show": asked.show,
        "filters": FILTERS,
        "chart": _chart(run, told, every),
        "changes": side_by_side(seed.texts, best.texts) if told.best != told.seed else [],
        "rest": [step_line(row, told) for row in told.rows if not epoch_of(row.phase)][-20:],
    }


def _epochs(run: Run, told: Glance, rows: Sequence[StepRow]) -> list[Epoch]:
    found: dict[int, list[tuple[StepRow, StepShown]]] = {}
    for row in rows:
        found.setdefault(epoch_of(row.phase), []).append((row, _shown(run, told, row)))
    made: list[Epoch] = []
    for number, steps in reversed(found.items()):
        kept = sum(row.kept for row, _ in steps)
        chosen = sum(one.chosen for _, one in steps)
        made.append(
            Epoch(number, tuple(one for _, one in steps), kept, f"{count(chosen, 'edit')} tried")
        )
    return made


def _shown(run: Run, told: Glance, row: StepRow) -> StepShown:
    answer = answered_step(run.folder, row)
    reply = answer.reply if answer else None
    about = _about(reply)
    opened = opened_step(run.folder, row)
    settings = opened.turn.settings if opened else _NOTHING
    fates: dict[str, int] = {}
    for report in closed_step(run.folder, row).reports:
        fates[report.fate] = fates.get(report.fate, 0) + 1
    rollout = cast("Mapping[str, Any]", about.get("rollout") or _NOTHING)
    cap = settings.get("max_edits")
    name = row.phase.partition("/")[2]
    return StepShown(
        step_line(row, told),
        f"step {settings.get('step', '')}" if name == STEP else name.replace("_", " "),
        rollout.get("hard"),
        rollout.get("n"),
        sum(_size(one.get("patch", _NOTHING)) for one in about.get("patches", ())),
        _size(about.get("merged") or _NOTHING),
        len(about.get("items", ())),
        cap if isinstance(cap, int) else None,
        ", ".join(f"{n} {fate}" for fate, n in fates.items()),
        any(fate != "applied" for fate in fates),
        reply.text if isinstance(reply, Note) else "",
    )


def _about(reply: Reply | None) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", reply.about) if isinstance(reply, Proposal | Skip) else {}


def _size(patch: Mapping[str, Any]) -> int:
    """How many edits a patch holds, whatever it calls them."""
    lists = (one for name, one in patch.items() if name not in ("said", "reasoning"))
    return next((len(cast("list[object]", one)) for one in lists if isinstance(one, list)), 0)


def _chart(run: Run, told: Glance, rows: Sequence[StepRow]) -> Markup | None:
    """What batches scored by step; drawn from the steps that reflect."""
    steps = [row for row in rows if row.phase.endswith(f"/{STEP}")][-MOST:]
    values: list[tuple[int, float]] = []
    for row in steps:
        answer = answered_step(run.folder, row)
        hard = (_about(answer.reply if answer else None).get("rollout") or _NOTHING).get("hard")
        if isinstance(hard, int | float):
            values.append((row.step, float(hard)))
    return score_chart(values, "score of the batch, before its step")
