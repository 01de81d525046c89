"""An agent.yaml that means from another folder what it means where it came from.

What was set besides is written into it, and paths that lead out of its folder lead from the new one
to the same place. Paths within its folder need nothing: links stand for what lies there.
"""

import io
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from kept.core.parsing import MAX_DEPTH
from kept.core.values import NoSpan
from kept.spec.locate.locate import locate_or_insert, read_value, with_texts
from kept.spec.locate.path import show_path

Setting = tuple[tuple[str | int, ...], object]
"""Where a value was set besides the file, and the value."""

CASES = (
    "test_cases_file",
    *(f"evaluations.optimizer.{split}_cases_file" for split in ("train", "holdout", "test")),
)
"""Keys of files whose own paths begin where the agent.yaml is."""

LONGEST = 4096
"""Characters of a path; no text that is longer is looked for on the disk."""


def with_settings(name: str, text: str, settings: Sequence[Setting]) -> str:
    """An agent.yaml with what a command line laid over it."""
    for loc, value in settings:
        key = show_path(loc)
        plain = isinstance(value, str | int | float)
        span = locate_or_insert(name, text, key) if plain else None
        if span is None or isinstance(span, NoSpan):
            text = _with_whole(text, loc, value)
        elif isinstance(value, str | int | float):
            text = text[: span.start] + span.render(value) + text[span.end :]
    return text


def _with_whole(text: str, loc: tuple[str | int, ...], value: object) -> str:
    """The same for what is no single value; comments and order stay."""
    from ruamel.yaml import YAML

    yaml: Any = YAML()
    yaml.preserve_quotes = True
    yaml.width = LONGEST
    yaml.max_depth = MAX_DEPTH
    data: Any = yaml.load(text)
    _put(data, loc, value)
    out = io.StringIO()
    yaml.dump(data, out)
    return out.getvalue()


def _put(here: Any, loc: tuple[str | int, ...], value: object) -> None:  # noqa: ANN401 # the library has no types
    first, *rest = loc
    if not rest:
        here[first] = value
        return
    if isinstance(first, str) and first not in here:
        here[first] = {}
    if here[first] is None:
        here[first] = {}
    _put(here[first], tuple(rest), value)


def led_from(name: str, text: str, source: Path, place: Path) -> str:
    """A text of one folder for another: its paths that lead out lead to where they led."""
    return with_texts(name, text, partial(_led, source, place))


def _led(source: Path, place: Path, said: str) -> str | None:
    if "\n" in said or "${" in said or len(said) > LONGEST:
        return None
    if Path(os.path.normpath(said)).parts[:1] != ("..",):
        return None
    target = source / said
    there = any(source.glob(said)) if any(sign in said for sign in "*?[") else target.exists()
    return Path(os.path.relpath(target, place)).as_posix() if there else None


class CaseFiles:
    """Files of cases that name files outside: those are written anew."""

    def __init__(self, source: Path, place: Path) -> None:
        self._source = source
        self._place = place
        self._known: dict[str, str | None] = {}

    def written(self, name: str, text: str) -> tuple[dict[str, str], dict[str, str]]:
        """The files by where they lie, and which keys of an agent.yaml name them."""
        files, keys = dict[str, str](), dict[str, str]()
        for key in CASES:
            said = read_value(name, text, key)
            new = self._text(said) if isinstance(said, str) else None
            if new is not None:
                path = f"cases/{len(keys)}-{Path(str(said)).name}"
                files[path] = new
                keys[key] = f"../{path}"
        return files, keys

    def _text(self, said: str) -> str | None:
        """A file of cases for the other folder; None where the very same will do."""
        if said not in self._known:
            path = self._source / said
            try:
                old = path.read_text(encoding="utf-8-sig")
            except (OSError, UnicodeDecodeError):
                return None  # it was never read, or is gone: whoever runs it is told so
            kind = "cases.json" if path.suffix == ".json" else "cases.yaml"
            new = led_from(kind, old, self._source, self._place)
            self._known[said] = None if new == old else new
        return self._known[said]
