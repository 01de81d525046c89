"""The values of an agent that a search may move: resolved, and each end of them tried."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kept.core.values import Value
from kept.models.config import REFERENCE
from kept.proposers.numeric.space import Axis, Choices, Numbers, Point, Space
from kept.recipes.agent_config.spec.axes import NumericAxisSpec
from kept.recipes.agent_config.spec.optimizer import BLOCK
from kept.recipes.agent_config.spec.read import ReadAgent
from kept.recipes.agent_config.trying import try_edits
from kept.recipes.agent_config.tunable import UNSET, Found, is_whole, look, why_not
from kept.recipes.agent_config.weights import Weighed, rests_of
from kept.spec.locate.locate import read_value
from kept.spec.locate.path import Part, parse_path
from kept.spec.source import kind_of
from kept.spec.yaml import Loc


class Row(NamedTuple):
    """An axis of the block, and what it stands for."""

    here: Loc
    spec: NumericAxisSpec
    parts: tuple[Part, ...]
    loc: Loc
    axis: Axis
    start: Value


def space_of(
    read: ReadAgent, specs: Iterable[tuple[int, NumericAxisSpec]]
) -> tuple[Space, Point] | None:
    """The space of the axes and where the agent stands in it; None, and reports, without one."""
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
    domain = _domain(spec, found)
    if isinstance(domain, Numbers) and is_whole(found.kind) and not domain.whole:
        message = f"`{spec.path}` takes whole numbers: {_why_not_whole(spec)}"
        read.source.report(here, message)
        return None
    if not domain.holds(value):
        message = f"it is {kind_of(value)} now, {_outside(domain)}"
        hint = "a search begins where the agent is: let the axis hold that"
        read.source.report(here, message, hint)
        return None
    file = read.place.path.name
    written = read_value(file, read.agent.texts[file], spec.path)
    if isinstance(written, str) and REFERENCE.search(written):
        message = f"`{spec.path}` stands as `{written}`, and setting it would put that out of use"
        read.source.report(loc, message, "write the value itself to have it tuned")
        return None
    return Row(here, spec, parts, found.loc, Axis(file, spec.path, domain, value), value)


def _present(read: ReadAgent, found: Found) -> Value | None:
    """The value as it counts, also where nobody says it."""
    spec, last = read.agent.spec, str(found.loc[-1])
    value: Value | None = found.value
    if found.loc[0] == "tools" and found.loc[2] == "model":
        # a prompt is answered by the agent's own model, unless it says
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


def _why_not_whole(spec: NumericAxisSpec) -> str:
    if spec.type == "float":
        return "leave `type` out, or write int"
    return "its range, and its step if it has one, are whole"


def _outside(domain: Numbers | Choices) -> str:
    if isinstance(domain, Choices):
        return "which is none of the choices"
    kind = "whole number" if domain.whole else "number"
    return f"which is no {kind} from {domain.low:g} to {domain.high:g}"


def _try(read: ReadAgent, rows: Sequence[Row], at: int, space: Space) -> None:
    """Set an axis to its ends, or to each of its choices, and see it come to the agent."""
    row, domain = rows[at], rows[at].axis.domain
    ends = (domain.at(0.0), domain.at(1.0)) if isinstance(domain, Numbers) else domain.values
    here = (*row.here, "range" if row.spec.range is not None else "choices")
    alone = _alone(space, at)
    for value in ends:
        point = tuple(value if n == at else other.start for n, other in enumerate(rows))
        edits = [edit for edit in space.edits(point) if edit.key in alone]
        agent = try_edits(read, edits)
        if isinstance(agent, str):
            read.source.report(here, f"{kind_of(value)} cannot be: {agent}")
            continue
        got = look(agent.spec, row.parts)
        if not isinstance(got, Found) or got.value != value:
            _report_stuck(read, row, value)
            return


def _alone(space: Space, at: int) -> set[str]:
    """The paths that go together with one axis."""
    found = {space.axes[at].path}
    for rest in space.rests:
        if at in rest.leaders:
            found |= {path for _, path, _ in rest.members}
            found |= {space.axes[leader].path for leader in rest.leaders}
    return found


def _report_stuck(read: ReadAgent, row: Row, value: Value) -> None:
    where = read.source.where(row.loc)
    over = f", because `{where}` counts" if where.startswith("--") else ""
    message = f"{kind_of(value)} is written into the file and does not come to the agent{over}"
    read.source.report((*row.here, "path"), message, "leave one of them out" if over else None)
