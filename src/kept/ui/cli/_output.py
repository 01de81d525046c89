"""Output of commands: the answer on stdout, everything else on stderr."""

import json
import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, cast

import click

from kept.settings import no_color

WIDE = 120
"""Columns of a terminal that shows reasons in full."""

LEAST = 6
"""Minimum width of a column; less is unreadable."""

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def answer(text: str) -> None:
    """Print on stdout, unchanged unless a terminal shows it."""
    # by default click strips escape sequences from files, but an artifact may contain some
    click.echo(text, color=True)


FORMAT = 1
"""Version of the JSON documents; raised if a key changes its meaning or is removed."""


def document(value: Any) -> None:  # noqa: ANN401 # any JSON value
    """Print one JSON document on stdout; an object starts with its format version."""
    if isinstance(value, dict):
        value = {"format": FORMAT, **cast("dict[str, object]", value)}
    text = json.dumps(value, ensure_ascii=False, indent=2)
    if any("\ud800" <= c <= "\udfff" for c in text):
        # lone surrogates, from text that was not UTF-8, survive only as escapes
        text = json.dumps(value, indent=2)
    answer(text)


def address(url: str, *, as_json: bool) -> None:
    """Print the address of a server that keeps running."""
    if as_json:
        document({"url": url})
    else:
        answer(url)


def note(text: str) -> None:
    """Print on stderr; errors are ignored, as its reader may be gone."""
    with suppress(OSError):
        click.echo(text, err=True)


def warn(text: str) -> None:
    """Print a warning on stderr."""
    note(f"warning: {text}")


def coloured() -> bool:
    """True if stdout shows colors."""
    return sys.stdout.isatty() and not no_color()


def style(text: str, **how: Any) -> str:  # noqa: ANN401 # what click.style takes
    """Text in color if stdout shows colors."""
    return click.style(text, **how) if coloured() else text


def visible(text: str) -> str:
    """Untrusted text without control characters on a terminal; unchanged elsewhere."""
    return _CONTROL.sub("�", text) if sys.stdout.isatty() else text


def coloured_diff(text: str) -> str:
    """Unified diff with colored lines if stdout shows colors."""
    text = visible(text)
    if not coloured():
        return text
    lines: list[str] = []
    for line in text.splitlines(keepends=True):
        colour = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1])
        if line.startswith(("+++", "---")):
            lines.append(click.style(line, bold=True))
        else:
            lines.append(click.style(line, fg=colour) if colour else line)
    return "".join(lines)


def table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Sequence[str] = (),
    whole: Sequence[str] = (),
    middle: Sequence[str] = (),
) -> str:
    """Table with aligned columns; on a terminal the widest are cut until a row fits.

    Columns in `right` are right-aligned, those in `whole` are never cut, those in `middle` lose
    their middle.
    """
    everything = [header, *rows]
    widths = [max(len(row[at]) for row in everything) for at in range(len(header))]
    # only a terminal gets cut cells: a file or pipe gets them in full
    if sys.stdout.isatty():
        room = shutil.get_terminal_size().columns - 2 * (len(widths) - 1)
        _fit(widths, [at for at, name in enumerate(header) if name not in whole], room)
    lines: list[str] = []
    for row in everything:
        cells: list[str] = []
        for name, cell, width in zip(header, row, widths, strict=True):
            if name in middle:
                cut = cut_middle(cell, width)
            else:
                cut = cell if len(cell) <= width else cell[: width - 1] + "…"
            cells.append(cut.rjust(width) if name in right else cut.ljust(width))
        lines.append("  ".join(cells).rstrip())
    lines[0] = style(lines[0], dim=True)
    return "\n".join(lines)


def pairs(rows: Iterable[tuple[str, str]]) -> str:
    """Labels and values in two columns."""
    rows = list(rows)
    longest = max((len(name) for name, _ in rows), default=0)
    width = 11 if longest < 11 else longest + 2
    return "\n".join(f"{name:<{width}}{text}".rstrip() for name, text in rows)


def is_narrow() -> bool:
    """True if stdout is a terminal that is too narrow for long text."""
    return sys.stdout.isatty() and shutil.get_terminal_size().columns < WIDE


def _fit(widths: list[int], may_shrink: Sequence[int], room: int) -> None:
    """Shrink the widest columns until all fit, or until none can shrink further."""
    while sum(widths) > room:
        widest = max(may_shrink, key=lambda at: widths[at], default=None)
        if widest is None or widths[widest] <= LEAST:
            return
        widths[widest] -= 1


def cut_middle(text: str, width: int) -> str:
    """Text cut to a width; most of its end remains."""
    if len(text) <= width:
        return text
    behind = (width - 1) * 2 // 3
    return f"{text[: width - 1 - behind]}…{text[len(text) - behind :]}"
