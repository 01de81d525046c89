"""SVG charts: trajectory, spend, sparkline, difference bars, loss with its parts.

Elements are text in which everything is escaped. The content security policy forbids style
attributes. Loss parts are shown, because a lower loss may come from less budget used alone.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from math import ceil, floor, isfinite, log10
from typing import NamedTuple

from markupsafe import Markup, escape

from kept.core.text import count
from kept.store.overview import Glance
from kept.store.step_index import SPENT, StepRow
from kept.ui.report.format import duration
from kept.ui.web.templates import figure, money, signed, thousands


def tag(name: str, *inside: Markup | str, **attributes: object) -> Markup:
    """HTML or SVG element; `class_` is the attribute `class`, and `_` in names becomes `-`."""
    head = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_short(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    body = "".join(escape(part) for part in inside)
    # element and attribute names are constants, all other text is escaped above
    return Markup(f"<{name}{head}>{body}</{name}>")


def _short(value: object) -> object:
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else value


def drawing(width: int, height: int, title: str, inside: Iterable[Markup], class_: str) -> Markup:
    """SVG image with a title for screen readers; with links inside, its role is `group`."""
    parts = list(inside)
    return tag(
        "svg",
        tag("title", title),
        *parts,
        viewBox=f"0 0 {width} {height}",
        class_=class_,
        role="group" if any("<a " in part for part in parts) else "img",
        aria_label=title,
        xmlns="http://www.w3.org/2000/svg",
    )


class Axis(NamedTuple):
    """Linear mapping from values to pixels."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """Pixel of a value, clamped to the range of the axis."""
        part = (value - self.low) / (self.high - self.low) if self.high > self.low else 0.5
        return self.start + min(1.0, max(0.0, part)) * (self.end - self.start)

    def ticks(self, most: int = 5) -> list[float]:
        """Round values within the axis, for labels."""
        reach = self.high - self.low
        if reach <= 0 or not isfinite(reach):
            return [self.low]
        raw = reach / most
        size = 10 ** floor(log10(raw))
        # the smallest of 1, 2, 5 and 10 times a power of ten with at most `most` intervals
        step = next((m * size for m in (1, 2, 5, 10) if m * size >= raw), 10 * size)
        first = ceil(self.low / step)
        return [n * step for n in range(first, floor(self.high / step + 1e-9) + 1)]


def spread(values: Sequence[float], start: float, end: float, room: float = 0.06) -> Axis:
    """Axis that holds all values, with a margin on each side."""
    known = [value for value in values if isfinite(value)]
    low, high = (min(known), max(known)) if known else (0.0, 1.0)
    pad = (high - low) * room or max(abs(high) * 0.1, 0.05)
    return Axis(low - pad, high + pad, start, end)


def polyline(points: Iterable[tuple[float, float]], class_: str) -> Markup:
    """Line through points."""
    return tag("path", d="M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points), class_=class_)


def dots(points: Iterable[tuple[float, float]], class_: str) -> Markup:
    """Many points as one element; points on the same pixel appear once."""
    spots = dict.fromkeys((round(x), round(y)) for x, y in points)
    return tag("path", d="".join(f"M{x} {y}h0" for x, y in spots), class_=class_)


def link(href: str, words: str, *inside: Markup) -> Markup:
    """Link with a tooltip."""
    return tag("a", tag("title", words), *inside, href=href, aria_label=words)


WIDTH, HEIGHT = 960, 280
LEFT, RIGHT, TOP, BOTTOM = 52, 12, 22, 26
MANY = 400
"""Number of candidates up to which each is a link; beyond, only kept ones are."""

USD = SPENT.index("usd")

Href = Callable[[int], str]


class Point(NamedTuple):
    """A measured candidate."""

    row: StepRow
    value: float
    low: float | None
    high: float | None
    screened: bool
    """True if it was measured on train cases only."""


class Path(NamedTuple):
    """Data of a trajectory chart."""

    points: tuple[Point, ...]
    stairs: tuple[tuple[int, float], ...]
    """Steps from which on the incumbent has a new value, with that value."""
    seed: float | None


def path_of(told: Glance) -> Path:
    """Data of a run's trajectory: its measured candidates and the values of its incumbents."""
    known = {t.purpose: t.loss for t in told.told(told.seed) if t.failed < t.asked}
    order = ("decide", "promote", "measure", "screen", "test")
    seed = told.value(next((known[p] for p in order if known.get(p) is not None), None))
    minimize = told.direction == "minimize"
    now = seed
    stairs = [(0, seed)] if seed is not None else []
    points: list[Point] = []
    for row in told.rows:
        decided = row.measured
        loss = decided if decided is not None else _screened(row)
        # losses are stored negated for metrics to maximize
        if loss is None or row.outcome == "crash" or row.code == "claim":
            continue
        value = loss if minimize else 0.0 - loss
        low, high = _interval(row, now, minimize)
        points.append(Point(row, value, low, high, decided is None))
        if row.kept:
            now = value
            stairs.append((row.step, value))
    return Path(tuple(points), tuple(stairs), seed)


def measured_loss(row: StepRow) -> float | None:
    """Loss on the deciding cases, else on train cases, where most rejected candidates end."""
    decided = row.measured
    return decided if decided is not None else _screened(row)


def _screened(row: StepRow) -> float | None:
    mine = (t.loss for t in row.told if t.candidate == row.candidate and t.purpose == "screen")
    return next(mine, None)


def _interval(row: StepRow, now: float | None, minimize: bool) -> tuple[float | None, float | None]:
    low, high = row.numbers.get("low"), row.numbers.get("high")
    # the interval of a promotion is relative to the earlier best, not to the incumbent
    if now is None or low is None or high is None or not row.judged:
        return None, None
    return (now - high, now - low) if minimize else (now + low, now + high)


def trajectory(told: Glance, href: Href) -> Markup | None:
    """Chart of candidates by step, with the incumbent as stairs; None if nothing was measured."""
    path = path_of(told)
    if not path.points and not path.stairs:
        return None
    last = max(1, len(told.rows) - 1 + len(told.open))
    across = Axis(0, last, LEFT, WIDTH - RIGHT)
    values = [p.value for p in path.points] + [value for _, value in path.stairs]
    few = len(path.points) <= MANY
    ends = [e for p in path.points if few or p.row.kept for e in (p.low, p.high) if e is not None]
    up = spread([*values, *ends], HEIGHT - BOTTOM, TOP)
    inside = [
        *_bands(told.rows, across),
        *_grid(across, up, told.metric),
        *_stairs(path, across, up, last),
        *(_whiskers(path, across, up) if few else ()),
        *_candidates(path, (across, up), href, few=few, best=told.best_step),
    ]
    kept = sum(p.row.kept for p in path.points)
    title = f"{told.metric} by step: {count(len(path.points), 'candidate')} measured, {kept} kept"
    return drawing(WIDTH, HEIGHT, title, inside, "chart trajectory")


def _bands(rows: Sequence[StepRow], across: Axis) -> Iterator[Markup]:
    """Background bands of the phases; none if there is only one phase."""
    phases = [(name, [row.step for row in group]) for name, group in groupby(rows, _phase)]
    if len(phases) < 2:
        return
    for number, (name, steps) in enumerate(phases):
        x, end = across.at(steps[0] - 0.5), across.at(steps[-1] + 0.5)
        width = max(1.0, end - x)
        yield tag(
            "rect", tag("title", name), x=x, y=TOP - 6, width=width,
            height=HEIGHT - BOTTOM - TOP + 6, class_=f"band band{number % 2}",
        )  # fmt: skip
        if width > 7 * len(name):
            yield tag("text", name, x=x + 4, y=TOP - 9, class_="tick")


def _phase(row: StepRow) -> str:
    return row.phase


def _grid(across: Axis, up: Axis, metric: str) -> Iterator[Markup]:
    for value in up.ticks(4):
        y = up.at(value)
        yield tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y, class_="grid")
        yield tag("text", f"{value:g}", x=LEFT - 6, y=y + 4, class_="tick end")
    for value in across.ticks(8):
        if value == int(value):
            place = across.at(value)
            yield tag("text", f"{value:.0f}", x=place, y=HEIGHT - 8, class_="tick middle")
    yield tag("text", "step", x=LEFT - 12, y=HEIGHT - 8, class_="tick end")
    yield tag("text", metric, x=4, y=12, class_="tick")


def _stairs(path: Path, across: Axis, up: Axis, last: int) -> Iterator[Markup]:
    if path.seed is not None:
        y = up.at(path.seed)
        yield tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y, class_="seed")
    if path.stairs:
        points: list[tuple[float, float]] = []
        for step, value in path.stairs:
            if points:
                points.append((across.at(step), points[-1][1]))
            points.append((across.at(step), up.at(value)))
        points.append((across.at(last), points[-1][1]))
        yield polyline(points, "stairs")


def _whiskers(path: Path, across: Axis, up: Axis) -> Iterator[Markup]:
    for point in path.points:
        if point.low is not None and point.high is not None:
            x = across.at(point.row.step)
            y1, y2 = up.at(point.low), up.at(point.high)
            shade = "whisker kept" if point.row.kept else "whisker"
            yield tag("line", x1=x, x2=x, y1=y1, y2=y2, class_=shade)


def _candidates(
    path: Path, axes: tuple[Axis, Axis], href: Href, *, few: bool, best: int | None
) -> Iterator[Markup]:
    across, up = axes
    if not few:
        for screened, shade in ((True, "mass screened"), (False, "mass")):
            some = [p for p in path.points if p.screened == screened and not p.row.kept]
            if some:
                yield dots(((across.at(p.row.step), up.at(p.value)) for p in some), shade)
    for point in path.points:
        if not (few or point.row.kept or point.row.best):
            continue
        x, y = across.at(point.row.step), up.at(point.value)
        words = f"step {point.row.step}: {_word(point)}, {figure(point.value)}"
        yield link(href(point.row.step), words, _mark(point, x, y, point.row.step == best))


def _word(point: Point) -> str:
    if point.row.best:
        return "kept and promoted" if point.row.kept else "promoted"
    return "kept" if point.row.kept else "screened on train cases" if point.screened else "not kept"


def _mark(point: Point, x: float, y: float, best: bool) -> Markup:
    """Mark with its own shape, not only color: diamond, disc or ring."""
    if point.row.best or best:
        d = f"M{x:.1f} {y - 7:.1f}l7 7l-7 7l-7 -7z"
        return tag("path", d=d, class_="mark promoted")
    if point.row.kept:
        return tag("circle", cx=x, cy=y, r=5, class_="mark kept")
    shade = "mark screened" if point.screened else "mark refused"
    return tag("circle", cx=x, cy=y, r=3, class_=shade)


def spend_chart(told: Glance) -> Markup | None:
    """Chart of spend over elapsed time; None if nothing was spent."""
    rows = told.rows
    if len(rows) < 2:
        return None
    of = SPENT.index("usd") if any(row.spent[USD] for row in rows) else SPENT.index("rollouts")
    paid = of == USD
    began, total = told.begun.t, 0.0
    points: list[tuple[float, float]] = []
    for row in rows:
        total += row.spent[of]
        points.append((row.closed - began, total))
    if total <= 0:
        return None
    width, height = 460, 120
    across = Axis(0.0, max(points[-1][0], 1e-9), LEFT, width - RIGHT)
    up = Axis(0.0, total, height - BOTTOM, 14)
    # at most about 300 points: more would not be visible
    every = max(1, len(points) // 300)
    drawn = [(LEFT, up.at(0)), *((across.at(t), up.at(v)) for t, v in points[::every])]
    drawn.append((across.at(points[-1][0]), up.at(total)))
    end = money(total) if paid else f"{thousands(total)} rollouts"
    clock = duration(points[-1][0])
    inside = [
        polyline(drawn, "spent"),
        tag("text", end, x=width - RIGHT, y=11, class_="tick end"),
        tag("text", "0", x=LEFT, y=height - 8, class_="tick"),
        tag("text", clock, x=width - RIGHT, y=height - 8, class_="tick end"),
    ]
    return drawing(width, height, f"spend over time: {end} in {clock}", inside, "chart spend")


def sparkline(values: Sequence[float], words: str) -> Markup:
    """Stairs of a run in the size of a word."""
    width, height = 96, 22
    up, across = spread(values, height - 3, 3), Axis(0, max(1, len(values) - 1), 2, width - 2)
    points: list[tuple[float, float]] = []
    for at, value in enumerate(values):
        if points:
            points.append((across.at(at), points[-1][1]))
        points.append((across.at(at), up.at(value)))
    inside = [polyline(points, "stairs")] if len(values) > 1 else []
    return drawing(width, height, words, inside, "spark")


def meter(part: float, words: str) -> Markup:
    """Bar that shows the used share of a limit."""
    filled = 96 * min(1.0, max(0.0, part))
    inside = [
        tag("rect", x=0, y=0, width=96, height=8, rx=2, class_="track"),
        tag("rect", x=0, y=0, width=filled, height=8, rx=2, class_="fill"),
    ]
    return drawing(96, 8, words, inside, "meter")


def differences(by_case: Mapping[str, float], href: Callable[[str], str]) -> Markup | None:
    """Bar of each case's difference, best first; None if there are no cases."""
    if not by_case:
        return None
    rows = sorted(by_case.items(), key=lambda pair: -pair[1])
    # of many cases, only the best 30 and the worst 30 are shown
    shown = rows if len(rows) <= 60 else [*rows[:30], *rows[-30:]]
    width, each = 460, 14
    far = max((abs(value) for _, value in shown), default=0.0) or 1.0
    # 6.4 pixels per character of the longest label
    left = 12 + 6.4 * max(len(case[:20]) for case, _ in shown)
    losing = any(value < 0 for _, value in shown)
    across = Axis(-far if losing else 0.0, far, left, width - 60)
    height = each * len(shown) + 8
    inside = [tag("line", x1=across.at(0), x2=across.at(0), y1=0, y2=height, class_="grid")]
    for number, (case, value) in enumerate(shown):
        y = number * each + 4
        start, end = sorted((across.at(0), across.at(value)))
        shade = "bar better" if value > 0 else "bar worse" if value < 0 else "bar same"
        words = f"{case}: {signed(value)}"
        label = case if len(case) <= 20 else f"{case[:19]}…"
        inside.append(
            link(
                href(case), words,
                tag("text", label, x=left - 6, y=y + 10, class_="tick end"),
                tag("rect", x=start, y=y + 2, width=max(1.5, end - start), height=9, class_=shade),
                tag("text", signed(value), x=width - 2, y=y + 10, class_="tick end"),
            )
        )  # fmt: skip
    better, worse = (sum(v > 0 for _, v in rows), sum(v < 0 for _, v in rows))
    title = f"{better} cases better, {worse} worse, {len(rows) - better - worse} the same"
    return drawing(width, height, title, inside, "chart bars")


def race_chart(gains: Sequence[float], needed: str) -> Markup | None:
    """Chart of the mean gain after each block of rollouts; None with fewer than two blocks."""
    if len(gains) < 2:
        return None
    width, height = 460, 130
    across = Axis(1, len(gains), LEFT, width - RIGHT)
    up = spread([0.0, *gains], height - BOTTOM, 12)
    zero = up.at(0)
    inside = [
        tag("line", x1=LEFT, x2=width - RIGHT, y1=zero, y2=zero, class_="seed"),
        tag("text", "0", x=LEFT - 6, y=zero + 4, class_="tick end"),
        polyline(((across.at(n), up.at(g)) for n, g in enumerate(gains, 1)), "stairs"),
        dots(((across.at(n), up.at(g)) for n, g in enumerate(gains, 1)), "mass"),
        tag("text", signed(gains[-1]), x=width - RIGHT, y=10, class_="tick end"),
        tag("text", needed, x=LEFT, y=height - 8, class_="tick"),
        tag("text", "draws", x=width - RIGHT, y=height - 8, class_="tick end"),
    ]
    return drawing(
        width, height, f"gain block by block, at last {signed(gains[-1])}", inside, "chart"
    )


def score_chart(
    values: Sequence[tuple[int, float]], words: str, unit: str = "step"
) -> Markup | None:
    """Chart of a score by step or epoch; None with fewer than two values."""
    if len(values) < 2:
        return None
    width, height = 460, 120
    across = Axis(values[0][0], values[-1][0], LEFT, width - RIGHT)
    up = spread([value for _, value in values], height - BOTTOM, 14)
    points = [(across.at(step), up.at(value)) for step, value in values]
    inside = [
        *(
            tag("text", f"{tick:g}", x=LEFT - 6, y=up.at(tick) + 4, class_="tick end")
            for tick in up.ticks(3)
        ),
        polyline(points, "stairs"),
        dots(points, "mass"),
        tag("text", f"{unit} {values[0][0]}", x=LEFT, y=height - 8, class_="tick"),
        tag("text", f"{unit} {values[-1][0]}", x=width - RIGHT, y=height - 8, class_="tick end"),
    ]
    first, last = figure(values[0][1]), figure(values[-1][1])
    return drawing(width, height, f"{words}: from {first} to {last}", inside, "chart")


PARTS = {
    "eval": ("metrics", 0.40),
    "critique": ("critics", 0.30),
    "gate_reject": ("refusals", 0.15),
    "budget_burn": ("budget", 0.05),
    "terminal": ("ending", 0.10),
}
"""Label of each loss part, and its highest possible value."""

BAR_WIDTH, BAR_HEIGHT = 240, 12


class PartShown(NamedTuple):
    """One part of a loss."""

    name: str
    word: str
    value: float
    most: float


class LossShown(NamedTuple):
    """A loss in display form."""

    total: float
    parts: tuple[PartShown, ...]
    bar: Markup


def loss_shown(parts: Mapping[str, float], widest: float = 1.0) -> LossShown | None:
    """Bar of a loss with its parts; None if they are unknown."""
    total = parts.get("total")
    if total is None:
        return None
    rows = [
        PartShown(name, word, parts[name], most)
        for name, (word, most) in PARTS.items()
        if name in parts
    ]
    scale = BAR_WIDTH / max(widest, total, 1e-9)
    inside = [tag("rect", x=0, y=0, width=BAR_WIDTH, height=BAR_HEIGHT, rx=2, class_="track")]
    x = 0.0
    for row in rows:
        width = max(0.0, row.value) * scale
        title = tag("title", f"{row.word} {figure(row.value)} of at most {row.most:g}")
        shade = f"part part-{row.name.replace('_', '-')}"
        inside += [tag("rect", title, x=x, y=0, width=width, height=BAR_HEIGHT, class_=shade)]
        x += width
    if not rows:
        inside += [
            tag("rect", x=0, y=0, width=total * scale, height=BAR_HEIGHT, class_="part whole")
        ]
    words = ", ".join(f"{row.word} {figure(row.value)}" for row in rows)
    title = f"loss {figure(total)}: {words}" if words else f"loss {figure(total)}"
    return LossShown(total, tuple(rows), drawing(BAR_WIDTH, BAR_HEIGHT, title, inside, "lossbar"))
