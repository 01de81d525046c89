"""Guards of a tuned agent: only named values may change in its file.

Kept's own proposers set values by path and could not do more. But a candidate may be merged from
several, or come from a future proposer. And an agent.yaml decides where requests go, with which
key.
"""

from collections.abc import Iterator, Mapping
from typing import Any, cast

from kept.core.artifact import Candidate
from kept.core.ports import Guard
from kept.core.untyped import is_list, list_in
from kept.proposers.few_shot import Layout
from kept.spec.locate.tree import Selector, parse_path, plain
from kept.spec.yaml import YamlFault, read_yaml

_NOTHING = object()


class OnlyAxes:
    """Implements `kept.core.ports.Guard`."""

    name = "axes"

    def __init__(self, file: str, paths: frozenset[str]) -> None:
        """Store the paths that may change in the file, in the format of axes."""
        self._file = file
        self._paths = paths

    def check(self, seed: Candidate, incumbent: Candidate, candidate: Candidate) -> str | None:
        """Report the first changed value that is on no axis."""
        old, new = seed.texts[self._file], candidate.texts.get(self._file)
        if new is None:
            return f"there is no {self._file} any more"
        if old == new:
            return None
        try:
            before, after = read_yaml(old).data, read_yaml(new).data
        except YamlFault as fault:
            return f"{self._file} is no YAML any more: {fault.message}"
        allowed = {place for path in self._paths for place in _places(after, path)}
        first, last = dict(_leaves(before, ())), dict(_leaves(after, ()))
        for place in dict.fromkeys((*first, *last)):
            same = first.get(place, _NOTHING) == last.get(place, _NOTHING)
            if not same and not any(place[: len(one)] == one for one in allowed):
                return f"`{_shown(place)}` changed, and is on no axis"
        return None


class WithoutExamples:
    """Guard that ignores the region of examples, which come from train cases."""

    def __init__(self, inner: Guard, layout: Layout) -> None:
        self._inner = inner
        self._layout = layout
        self.name = inner.name

    def check(self, seed: Candidate, incumbent: Candidate, candidate: Candidate) -> str | None:
        """Run the inner guard without the examples."""
        return self._inner.check(seed, incumbent, self._bare(candidate))

    def _bare(self, candidate: Candidate) -> Candidate:
        texts = dict(candidate.texts)
        for path, text in texts.items():
            region = self._layout.region(text)
            if region is not None:
                texts[path] = text.replace(region, "")
        return Candidate(texts)


Place = tuple[str | int, ...]


def _leaves(data: object, place: Place) -> Iterator[tuple[Place, object]]:
    if isinstance(data, Mapping):
        for key, value in cast("Mapping[Any, object]", data).items():
            yield from _leaves(value, (*place, str(key)))
    # a list of another length is a change too, even if all common elements are equal
    elif is_list(data):
        yield (*place, "length"), len(data)
        for number, value in enumerate(data):
            yield from _leaves(value, (*place, number))
    else:
        yield place, data


def _places(data: object, path: str) -> Iterator[Place]:
    """Locations in a file that a path selects."""
    parts = parse_path(path)
    if isinstance(parts, str):
        return
    place: Place = ()
    for part in parts:
        if isinstance(part, Selector):
            rows = list_in(data)
            found = [
                n
                for n, row in enumerate(rows)
                if isinstance(row, Mapping)
                and plain(cast("Mapping[str, object]", row).get(part.field)) == part.value
            ]
            # a selector without exactly one match allows no change
            if len(found) != 1:
                return
            data, place = rows[found[0]], (*place, found[0])
        else:
            there = cast("Any", data)
            try:
                data = there[part]
            except (KeyError, IndexError, TypeError):
                data = None
            place = (*place, part)
    yield place


def _shown(place: Place) -> str:
    shown = ""
    for part in place:
        shown += f"[{part}]" if isinstance(part, int) else f".{part}" if shown else part
    return shown
