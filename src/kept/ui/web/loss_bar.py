"""A loss with its parts: one that fell because less budget was used is no better deliverable."""

from collections.abc import Mapping
from typing import NamedTuple

from markupsafe import Markup

from kept.ui.web.figures import figure
from kept.ui.web.svg import drawing, tag

PARTS = {
    "eval": ("metrics", 0.40),
    "critique": ("critics", 0.30),
    "gate_reject": ("refusals", 0.15),
    "budget_burn": ("budget", 0.05),
    "terminal": ("ending", 0.10),
}
"""What each part is of, and the most it can be."""

WIDTH, HEIGHT = 240, 12


class PartShown(NamedTuple):
    """One part."""

    name: str
    word: str
    value: float
    most: float


class LossShown(NamedTuple):
    """A loss for people."""

    total: float
    parts: tuple[PartShown, ...]
    bar: Markup


def loss_shown(parts: Mapping[str, float], widest: float = 1.0) -> LossShown | None:
    """A loss with its parts as a bar; None where nobody knows them."""
    total = parts.get("total")
    if total is None:
        return None
    rows = [
        PartShown(name, word, parts[name], most)
        for name, (word, most) in PARTS.items()
        if name in parts
    ]
    scale = WIDTH / max(widest, total, 1e-9)
    inside = [tag("rect", x=0, y=0, width=WIDTH, height=HEIGHT, rx=2, class_="track")]
    x = 0.0
    for row in rows:
        width = max(0.0, row.value) * scale
        title = tag("title", f"{row.word} {figure(row.value)} of at most {row.most:g}")
        shade = f"part part-{row.name.replace('_', '-')}"
        inside += [tag("rect", title, x=x, y=0, width=width, height=HEIGHT, class_=shade)]
        x += width
    if not rows:
        inside += [tag("rect", x=0, y=0, width=total * scale, height=HEIGHT, class_="part whole")]
    words = ", ".join(f"{row.word} {figure(row.value)}" for row in rows)
    title = f"loss {figure(total)}: {words}" if words else f"loss {figure(total)}"
    return LossShown(total, tuple(rows), drawing(WIDTH, HEIGHT, title, inside, "lossbar"))
