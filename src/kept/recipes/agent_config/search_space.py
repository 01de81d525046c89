"""Search space of an agent: axes, the values they resolve to, and hybrid weights.

Each axis is tried before any spending: it is set to both ends, or to each choice, and the agent
is read again. The value must then have reached the agent.

Weights of a hybrid search sum to 1. With one axis, the other two share the rest in their current
proportion. With two, the third is the rest. All three cannot have axes.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from pydantic import BaseModel

from kept.core.artifact import Locator, Value
from kept.core.untyped import is_list
from kept.models.providers import REFERENCE
from kept.proposers.numeric.space import Axis, Choices, Numbers, Point, Rest, Space
from kept.proposers.text_units import TextAxis
from kept.recipes.agent_config.spec.optimizer import (
    BLOCK,
    AxesSpec,
    DemosAxisSpec,
    NumericAxisSpec,
    TextualAxisSpec,
)
from kept.recipes.agent_config.spec.read import ReadAgent
from kept.recipes.agent_config.spec.tools import WEIGHTS, HierarchicalDocumentToolSpec
from kept.recipes.agent_config.tunable import (
    UNSET,
    Found,
    is_whole,
    look,
    text_of,
    texts_of,
    try_edits,
    why_not,
)
from kept.spec.locate.tree import Part, locate_or_insert, parse_path, read_value, show_path
from kept.spec.source import Source, kind_of
from kept.spec.validate import said, section
from kept.spec.yaml import Loc


class Weighed(NamedTuple):
    """Data of an axis that dependent weights need."""

    here: Loc
    """Location of the axis in the block."""
    parts: tuple[Part, ...]
    loc: Loc
    axis: Axis


def rests_of(read: ReadAgent, rows: Sequence[Weighed]) -> tuple[Rest, ...] | None:
    """Weights that follow from axes on other weights; None, and reports, if impossible."""
    groups: dict[Loc, list[int]] = {}
    for at, row in enumerate(rows):
        if row.loc[0] == "tools" and row.loc[-1] in WEIGHTS:
            groups.setdefault(row.loc[:-1], []).append(at)
    rests = [_rest(read, rows, group) for group in groups.values()]
    found = tuple(rest for rest in rests if rest is not None)
    return found if len(found) == len(rests) else None


def _rest(read: ReadAgent, rows: Sequence[Weighed], group: list[int]) -> Rest | None:
    first = rows[group[0]]
    tool = read.agent.spec.tools[int(first.loc[1])]
    assert isinstance(tool, HierarchicalDocumentToolSpec)  # the only one with weights
    keys = [str(rows[at].loc[-1]) for at in group]
    others = [key for key in WEIGHTS if key not in keys]
    now = [float(getattr(tool, key)) for key in others]
    domains = [rows[at].axis.domain for at in group]
    most = sum(
        max(float(value) for value in one.values) if isinstance(one, Choices) else one.high
        for one in domains
    )
    reason = None
    if not _hybrid(rows, first, tool):
        reason = f"`search_mode: {tool.search_mode}` has no use for it"
    elif not others:
        reason = "all three weights have axes, and they sum to 1: leave one to follow the others"
    elif len(group) == 1 and not any(now):
        reason = f"{_and(others)} are 0, and cannot share what it leaves: give one of them a weight"
    elif len(group) == 2 and most > 1 + 1e-9:
        reason = f"the greatest {_and(keys)} sum to {most:g}, and leave nothing for `{others[0]}`"
    if reason:
        read.source.report(first.here, f"`{show_path(first.parts)}` cannot be tuned: {reason}")
        return None
    shares = [value / sum(now) for value in now] if len(group) == 1 else [1.0]
    paths = [show_path((*first.parts[:-1], key)) for key in others]
    members = zip([first.axis.file] * len(paths), paths, shares, strict=True)
    return Rest(tuple(group), tuple(members))


def _hybrid(rows: Sequence[Weighed], weight: Weighed, tool: HierarchicalDocumentToolSpec) -> bool:
    """True if weights matter at least at some points of the search."""
    if tool.search_mode == "hybrid":
        return True
    modes = [row.axis.domain for row in rows if row.loc == (*weight.loc[:-1], "search_mode")]
    return any(isinstance(mode, Choices) and mode.holds("hybrid") for mode in modes)


def _and(keys: Sequence[str]) -> str:
    return " and ".join(f"`{key}`" for key in keys)


class Row(NamedTuple):
    """An axis of the block, resolved."""

    here: Loc
    spec: NumericAxisSpec
    parts: tuple[Part, ...]
    loc: Loc
    axis: Axis
    start: Value


def space_of(
    read: ReadAgent, specs: Iterable[tuple[int, NumericAxisSpec]]
) -> tuple[Space, Point] | None:
    """Space of the axes, and the agent's point in it; None, and reports, if invalid."""
    rows: list[Row] = []
    for number, spec in specs:
        row = _row(read, (*BLOCK, "axes", "numeric", number), spec)
        if row is None:
            continue
        if row.loc in [other.loc for other in rows]:
            read.source.report((*row.here, "path"), f"`{spec.path}` has two axes")
            continue
        rows.append(row)
    weighed = [Weighed((*row.here, "path"), row.parts, row.loc, row.axis) for row in rows]
    rests = rests_of(read, weighed)
    if not rows or rests is None:
        return None
    space = Space(tuple(row.axis for row in rows), rests)
    start = tuple(row.start for row in rows)
    for at in range(len(rows)):
        _try(read, rows, at, space)
    return space, start


def _row(read: ReadAgent, here: Loc, spec: NumericAxisSpec) -> Row | None:
    loc = (*here, "path")
    parts = parse_path(spec.path)
    found = parts if isinstance(parts, str) else look(read.agent.spec, parts)
    if isinstance(found, str) or isinstance(parts, str):
        read.source.report(loc, str(found))
        return None
    if found.value is not None and not isinstance(found.value, str | int | float):
        read.source.report(loc, f"`{spec.path}` is no single value")
        return None
    if reason := why_not(read.agent.spec, found.loc):
        read.source.report(loc, f"`{spec.path}` cannot be tuned: {reason}")
        return None
    value = _present(read, found)
    if value is None:
        message = f"`{spec.path}` has no value to begin from"
        read.source.report(loc, message, "write one into the agent.yaml")
        return None
    # the axis must allow whole numbers where needed, and contain the present value
    domain = _domain(spec, found)
    if isinstance(domain, Numbers) and is_whole(found.kind) and not domain.whole:
        use = "its range, and its step if it has one, are whole"
        use = "leave `type` out, or write int" if spec.type == "float" else use
        message = f"`{spec.path}` takes whole numbers: {use}"
        read.source.report(here, message)
        return None
    if not domain.holds(value):
        message = f"it is {kind_of(value)} now, {_outside(domain)}"
        hint = "a search begins where the agent is: let the axis hold that"
        read.source.report(here, message, hint)
        return None
    file = read.place.path.name
    # a value from a variable would be replaced in the file, and the variable be ignored
    written = read_value(file, read.agent.texts[file], spec.path)
    if isinstance(written, str) and REFERENCE.search(written):
        message = f"`{spec.path}` stands as `{written}`, and setting it would put that out of use"
        read.source.report(loc, message, "write the value itself to have it tuned")
        return None
    return Row(here, spec, parts, found.loc, Axis(file, spec.path, domain, value), value)


def _present(read: ReadAgent, found: Found) -> Value | None:
    """Current value, with defaults for values that are not set."""
    spec, last = read.agent.spec, str(found.loc[-1])
    value: Value | None = found.value
    if found.loc[0] == "tools" and found.loc[2] == "model":
        # a prompt tool without a model uses the agent's own
        own = getattr(spec.tools[int(found.loc[1])], "model", None)
        value = getattr(own or spec.model, last)
    if value is None and last == "max_turns":
        return spec.max_turns
    return UNSET.get(last) if value is None else value


def _domain(spec: NumericAxisSpec, found: Found) -> Numbers | Choices:
    if spec.choosing:
        return Choices(spec.values)
    low, high = spec.values
    ends_whole = all(float(end).is_integer() for end in (low, high, spec.step or 1))
    whole = spec.type == "int" or (spec.type is None and ends_whole and is_whole(found.kind))
    return Numbers(low, high, whole, spec.log, spec.step)


def _outside(domain: Numbers | Choices) -> str:
    if isinstance(domain, Choices):
        return "which is none of the choices"
    kind = "whole number" if domain.whole else "number"
    return f"which is no {kind} from {domain.low:g} to {domain.high:g}"


def _try(read: ReadAgent, rows: Sequence[Row], at: int, space: Space) -> None:
    """Set an axis to its ends, or to each choice, and check that the agent gets the value."""
    row, domain = rows[at], rows[at].axis.domain
    ends = (domain.at(0.0), domain.at(1.0)) if isinstance(domain, Numbers) else domain.values
    here = (*row.here, "range" if row.spec.range is not None else "choices")
    alone = _alone(space, at)
    for value in ends:
        point = tuple(value if n == at else other.start for n, other in enumerate(rows))
        # only this axis and dependent weights, so that each problem is reported at its own axis
        edits = [edit for edit in space.edits(point) if edit.key in alone]
        agent = try_edits(read, edits)
        if isinstance(agent, str):
            read.source.report(here, f"{kind_of(value)} cannot be: {agent}")
            continue
        got = look(agent.spec, row.parts)
        if not isinstance(got, Found) or got.value != value:
            where = read.source.where(row.loc)
            over = f", because `{where}` counts" if where.startswith("--") else ""
            message = (
                f"{kind_of(value)} is written into the file and does not come to the agent{over}"
            )
            hint = "leave one of them out" if over else None
            read.source.report((*row.here, "path"), message, hint)
            return


def _alone(space: Space, at: int) -> set[str]:
    """Paths that must be set together with one axis."""
    found = {space.axes[at].path}
    for rest in space.rests:
        if at in rest.leaders:
            found |= {path for _, path, _ in rest.members}
            found |= {space.axes[leader].path for leader in rest.leaders}
    return found


M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Axes:
    """All axes of an agent."""

    numeric: Space | None
    start: Point
    """Current point of the agent."""
    textual: tuple[TextAxis, ...]
    demos: TextAxis | None
    """Text that examples are appended to."""
    locate: Locator = locate_or_insert


def axes_of(read: ReadAgent, spec: AxesSpec | None = None) -> Axes:
    """Read the axes, with reports; without a spec, those of the block that are valid."""
    source, loc = read.source, (*BLOCK, "axes")
    numeric = enumerate(spec.numeric) if spec else _rows(source, "numeric", NumericAxisSpec)
    textual = enumerate(spec.textual) if spec else _rows(source, "textual", TextualAxisSpec)
    demos = spec.demos if spec else section(source, (*loc, "demos"), DemosAxisSpec)
    found = space_of(read, numeric)
    return Axes(
        found[0] if found else None,
        found[1] if found else (),
        texts_of(read, textual),
        text_of(read, (*loc, "demos"), demos) if demos else None,
    )


def _rows(source: Source, kind: str, model: type[M]) -> Iterator[tuple[int, M]]:
    """Valid axes of a kind, each with its index."""
    given = said(source, (*BLOCK, "axes", kind))
    for number in range(len(given) if is_list(given) else 0):
        row = section(source, (*BLOCK, "axes", kind, number), model)
        if row is not None:
            yield number, row
