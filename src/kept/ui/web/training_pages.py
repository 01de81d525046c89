"""Pages of trainings, epoch by epoch, and of tuned numbers, axis by axis.

A training shows observations, proposals, selection, edits and decisions. Tuned numbers show every
point tried and its result.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from markupsafe import Markup

from kept.core.edit import SetValue
from kept.core.proposal import Note, Proposal, Reply, Skip
from kept.core.text import count
from kept.core.turns import STEP, epoch_of
from kept.store.overview import Glance
from kept.store.reader import Run
from kept.store.step_index import StepRow, answered_step, closed_step, opened_step
from kept.ui.web.charts import (
    Axis,
    Href,
    dots,
    drawing,
    link,
    measured_loss,
    polyline,
    score_chart,
    spread,
    tag,
)
from kept.ui.web.run_page import FILTERS, PAGE, Asked, View, is_shown, step_line
from kept.ui.web.step_page import side_by_side
from kept.ui.web.templates import Links, figure

MAX_POINTS = 400
"""Maximum number of points on the page, the newest."""
MOST_AXES = 8
LONGEST = 40
"""Maximum characters of a choice; a longer value is a text."""

Value = float | str


@dataclass(frozen=True, slots=True)
class Tried:
    """One point that was tried."""

    row: StepRow
    values: Mapping[str, Value]
    score: float | None
    densities: Mapping[str, tuple[float, float]]
    """Log densities of good and of other points there, by axis."""
    study: str


def numbers_view(told: Glance, links: Links) -> dict[str, object]:
    """Template values: parallel coordinates and one slice per axis."""
    points = list(_points(told))
    axes = list(dict.fromkeys(name for point in points for name in point.values))[:MOST_AXES]
    measured = [point for point in points if point.score is not None]

    def href(step: int) -> str:
        return links.step(told.id, step)

    return {
        "points": len(points),
        "axes": axes,
        "parallel": parallel(measured, axes, told.metric, href) if measured else None,
        "slices": [(name, *slice_of(measured, name, told.metric, href)) for name in axes]
        if measured
        else [],
        "studies": list(dict.fromkeys(point.study for point in points if point.study)),
        "newest": len(points) == MAX_POINTS,
    }


def _points(told: Glance) -> Iterator[Tried]:
    found = 0
    for row in reversed(told.rows):
        answer = answered_step(told.folder, row) if row.judged and row.proposed[1] else None
        if answer is None or not isinstance(answer.reply, Proposal):
            continue
        reply = answer.reply
        about = cast("Mapping[str, Any]", reply.about)
        values = _values(reply, about)
        # a proposal with a long text is no point of numbers and choices
        if values and not any(isinstance(v, str) and len(v) > LONGEST for v in values.values()):
            loss = None if row.outcome == "crash" else measured_loss(row)
            study = str(about.get("numeric_study_id") or "")
            yield Tried(row, values, told.value(loss), _densities(about), study)
            found += 1
        # stop after MAX_POINTS points, or 4 * MAX_POINTS steps before the newest
        if found >= MAX_POINTS or told.rows[-1].step - row.step > 4 * MAX_POINTS:
            return


def _values(reply: Proposal, about: Mapping[str, Any]) -> dict[str, Value]:
    """Point of a proposal; empty if the proposal changes texts."""
    params = about.get("params")
    if isinstance(params, Mapping):
        given = cast("Mapping[str, object]", params)
        return {name: _value(value) for name, value in given.items()}
    if not all(isinstance(edit, SetValue) for edit in reply.edits):
        return {}
    edits = cast("Sequence[SetValue]", reply.edits)
    return {edit.key: _value(edit.value) for edit in edits}


def _value(value: object) -> Value:
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    return float(cast("float", value)) if plain else str(value)


def _densities(about: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
    found: dict[str, tuple[float, float]] = {}
    shown = cast("Mapping[str, Mapping[str, Any]]", about.get("axis_marginals") or {})
    for name, told in shown.items():
        good, bad = told.get("good_density"), told.get("bad_density")
        if isinstance(good, int | float) and isinstance(bad, int | float):
            found[name] = (float(good), float(bad))
    return found


@dataclass(frozen=True, slots=True)
class _Scale:
    """Positions of an axis: numbers by value, words in sorted order."""

    axis: Axis
    words: Mapping[str, int]

    def at(self, value: Value) -> float:
        return self.axis.at(self.words[value] if isinstance(value, str) else value)


def _scale(values: Sequence[Value], start: float, end: float) -> _Scale:
    names = sorted({value for value in values if isinstance(value, str)})
    words = {name: number for number, name in enumerate(names)}
    numbers = [float(words[v]) if isinstance(v, str) else v for v in values]
    return _Scale(spread(numbers, start, end), words)


def parallel(points: Sequence[Tried], axes: Sequence[str], metric: str, href: Href) -> Markup:
    """Chart with one line per point through all axes, the metric last."""
    width, height, top, bottom = 960, 300, 34, 274
    names = [*axes, metric]
    gap = (width - 160) / max(1, len(names) - 1)
    scales: dict[str, _Scale] = {}
    inside: list[Markup] = []
    for number, name in enumerate(axes):
        values = [point.values[name] for point in points if name in point.values]
        scales[name] = _scale(values, bottom, top)
        inside += _upright(80 + number * gap, name, scales[name], (top, bottom))
    scores = [cast("float", point.score) for point in points]
    last = _scale(scores, bottom, top)
    inside += _upright(80 + len(axes) * gap, metric, last, (top, bottom))
    # kept points last, so that they are on top
    for point in sorted(points, key=lambda point: point.row.kept):
        through = [
            (80 + n * gap, scales[name].at(point.values[name]))
            for n, name in enumerate(axes)
            if name in point.values
        ]
        through.append((80 + len(axes) * gap, last.at(cast("float", point.score))))
        shade = "strand kept" if point.row.kept else "strand"
        strand = polyline(through, shade)
        words = f"step {point.row.step}: {figure(point.score)}"
        inside.append(link(href(point.row.step), words, strand) if point.row.kept else strand)
    title = f"{count(len(points), 'point')} along {count(len(axes), 'axis', 'axes')}"
    return drawing(width, height, title, inside, "chart trajectory")


def _upright(x: float, name: str, scale: _Scale, ends: tuple[int, int]) -> Iterator[Markup]:
    yield tag("line", x1=x, x2=x, y1=ends[0], y2=ends[1], class_="grid")
    short = name if len(name) <= 26 else f"…{name[-25:]}"
    yield tag("text", short, x=x, y=ends[0] - 16, class_="tick middle")
    if scale.words:
        for word, number in scale.words.items():
            yield tag("text", word[:14], x=x + 4, y=scale.axis.at(number) + 4, class_="tick")
    else:
        for value in scale.axis.ticks(4):
            yield tag("text", f"{value:g}", x=x + 4, y=scale.axis.at(value) + 4, class_="tick")


def slice_of(
    points: Sequence[Tried], name: str, metric: str, href: Href
) -> tuple[Markup, Markup | None]:
    """Chart of one axis against the metric; with recorded densities, also a chart of those."""
    mine = [point for point in points if name in point.values]
    width, height = 320, 180
    across = _scale([point.values[name] for point in mine], 44, width - 10)
    up = spread([cast("float", point.score) for point in mine], height - 24, 12)
    inside: list[Markup] = []
    for value in up.ticks(3):
        y = up.at(value)
        inside.append(tag("line", x1=44, x2=width - 10, y1=y, y2=y, class_="grid"))
        inside.append(tag("text", f"{value:g}", x=40, y=y + 4, class_="tick end"))
    inside += _below(across, height)
    for point in mine:
        x, y = across.at(point.values[name]), up.at(cast("float", point.score))
        shade = "mark kept" if point.row.kept else "mark refused"
        mark = tag("circle", cx=x, cy=y, r=5 if point.row.kept else 3, class_=shade)
        words = f"step {point.row.step}: {name} {point.values[name]}, {figure(point.score)}"
        inside.append(link(href(point.row.step), words, mark))
    picture = drawing(width, height, f"{metric} by {name}", inside, "chart")
    return picture, _density(mine, name, across)


def _below(across: _Scale, height: int) -> Iterator[Markup]:
    if across.words:
        for word, number in across.words.items():
            place = across.axis.at(number)
            yield tag("text", word[:12], x=place, y=height - 8, class_="tick middle")
    else:
        for value in across.axis.ticks(4):
            place = across.axis.at(value)
            yield tag("text", f"{value:g}", x=place, y=height - 8, class_="tick middle")


def _density(points: Sequence[Tried], name: str, across: _Scale) -> Markup | None:
    every = [point for point in points if name in point.densities]
    # each study has its own densities; show those of the newest point's study
    known = [point for point in every if point.study == every[0].study]
    if len(known) < 2:
        return None
    places = [across.at(point.values[name]) for point in known]
    sides = [[math.exp(point.densities[name][side]) for point in known] for side in (0, 1)]
    top = max(max(side) for side in sides) or 1.0
    # a stem per point, good up and others down: a line would join densities of different times
    zero = 40
    inside = [tag("line", x1=44, x2=310, y1=zero, y2=zero, class_="grid")]
    for shade, side, end in zip(("good", "bad"), sides, (6, 74), strict=True):
        up = Axis(0.0, top, zero, end)
        tips = [(x, up.at(y)) for x, y in zip(places, side, strict=True)]
        stems = "".join(f"M{x:.1f} {zero}V{y:.1f}" for x, y in tips)
        inside += [tag("path", d=stems, class_=shade), dots(tips, f"{shade} spots")]
    inside.append(tag("text", "good", x=40, y=zero - 8, class_="tick end"))
    inside.append(tag("text", "others", x=40, y=zero + 16, class_="tick end"))
    study = f", by {known[0].study}" if known[0].study else ""
    title = f"{name}: how dense good points (up) and others (down) are{study}"
    return drawing(320, 80, title, inside, "chart")


MAX_STEPS = 300
"""Maximum number of steps in the chart of train scores."""
_NOTHING: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True)
class StepShown:
    """A step of a training."""

    line: Mapping[str, object]
    name: str
    """Name of the step: `step 2`, or the kind of work at the end of an epoch."""
    hard: float | None
    """Score of the batch before the step's change."""
    seen: int | None
    proposed: int
    merged: int
    chosen: int
    cap: int | None
    fates: str
    lost: bool
    """True if an edit was not applied."""
    note: str


@dataclass(frozen=True, slots=True)
class Epoch:
    """Steps of one pass through the train cases."""

    number: int
    steps: tuple[StepShown, ...]
    kept: int
    edits: str


def body(run: Run, told: Glance, asked: Asked) -> View:
    """Template values of a training's page."""
    every = [row for row in told.rows if epoch_of(row.phase)]
    inside = [row for row in every if is_shown(row, asked.show)]
    pages = max(1, -(-len(inside) // PAGE))
    # page 1 holds the newest steps; within a page steps are in order
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
    """Number of edits in a patch, under any of its key names."""
    lists = (one for name, one in patch.items() if name not in ("said", "reasoning"))
    return next((len(cast("list[object]", one)) for one in lists if isinstance(one, list)), 0)


def _chart(run: Run, told: Glance, rows: Sequence[StepRow]) -> Markup | None:
    """Chart of batch scores by step, for steps that reflect."""
    steps = [row for row in rows if row.phase.endswith(f"/{STEP}")][-MAX_STEPS:]
    values: list[tuple[int, float]] = []
    for row in steps:
        answer = answered_step(run.folder, row)
        hard = (_about(answer.reply if answer else None).get("rollout") or _NOTHING).get("hard")
        if isinstance(hard, int | float):
            values.append((row.step, float(hard)))
    return score_chart(values, "score of the batch, before its step")
