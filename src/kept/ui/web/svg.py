"""Drawing: elements as text in which everything is escaped. No style attribute, for the policy."""

from collections.abc import Iterable, Sequence
from math import ceil, floor, isfinite, log10
from typing import NamedTuple

from markupsafe import Markup, escape


def tag(name: str, *inside: Markup | str, **attributes: object) -> Markup:
    """An element; `class_` is the attribute `class`, and `_` in names is `-`."""
    head = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_short(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    body = "".join(escape(part) for part in inside)
    # names of elements and attributes are ours, and the rest is escaped above
    return Markup(f"<{name}{head}>{body}</{name}>")


def _short(value: object) -> object:
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else value


def drawing(width: int, height: int, title: str, inside: Iterable[Markup], class_: str) -> Markup:
    """A picture with a name, for those who hear pages; one with links in it is no mere picture."""
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
    """From values to places."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """The place of a value, held inside."""
        part = (value - self.low) / (self.high - self.low) if self.high > self.low else 0.5
        return self.start + min(1.0, max(0.0, part)) * (self.end - self.start)

    def ticks(self, most: int = 5) -> list[float]:
        """Round values within."""
        reach = self.high - self.low
        if reach <= 0 or not isfinite(reach):
            return [self.low]
        raw = reach / most
        size = 10 ** floor(log10(raw))
        step = next((m * size for m in (1, 2, 5, 10) if m * size >= raw), 10 * size)
        first = ceil(self.low / step)
        return [n * step for n in range(first, floor(self.high / step + 1e-9) + 1)]


def spread(values: Sequence[float], start: float, end: float, room: float = 0.06) -> Axis:
    """An axis that holds all values, with some room on each side."""
    known = [value for value in values if isfinite(value)]
    low, high = (min(known), max(known)) if known else (0.0, 1.0)
    pad = (high - low) * room or max(abs(high) * 0.1, 0.05)
    return Axis(low - pad, high + pad, start, end)


def polyline(points: Iterable[tuple[float, float]], class_: str) -> Markup:
    """A line through points."""
    return tag("path", d="M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points), class_=class_)


def dots(points: Iterable[tuple[float, float]], class_: str) -> Markup:
    """Many points in one element, those on the same spot once."""
    spots = dict.fromkeys((round(x), round(y)) for x, y in points)
    return tag("path", d="".join(f"M{x} {y}h0" for x, y in spots), class_=class_)


def link(href: str, words: str, *inside: Markup) -> Markup:
    """What leads somewhere, with words for who points at it."""
    return tag("a", tag("title", words), *inside, href=href, aria_label=words)
