"""Weights of a hybrid search: they sum to 1, so that one moves the others.

Where one has an axis, the other two share what it leaves as they do now. Where two have, the third
is what they leave. Three cannot have axes of their own.
"""

from collections.abc import Sequence
from typing import NamedTuple

from kept.proposers.numeric.space import Axis, Choices, Rest
from kept.recipes.agent_config.spec.read import ReadAgent
from kept.recipes.agent_config.spec.tools import HierarchicalDocumentToolSpec
from kept.recipes.agent_config.tunable import WEIGHTS
from kept.spec.locate.path import Part, show_path
from kept.spec.yaml import Loc


class Weighed(NamedTuple):
    """An axis, as far as weights need to know it."""

    here: Loc
    """Where the block names it."""
    parts: tuple[Part, ...]
    loc: Loc
    axis: Axis


def rests_of(read: ReadAgent, rows: Sequence[Weighed]) -> tuple[Rest, ...] | None:
    """What follows the axes on weights; None, and reports, where nothing can."""
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
    assert isinstance(tool, HierarchicalDocumentToolSpec)
    keys = [str(rows[at].loc[-1]) for at in group]
    others = [key for key in WEIGHTS if key not in keys]
    now = [float(getattr(tool, key)) for key in others]
    most = sum(_most(rows[at].axis) for at in group)
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
    """Whether weights count, be it only at some points of the search."""
    if tool.search_mode == "hybrid":
        return True
    modes = [row.axis.domain for row in rows if row.loc == (*weight.loc[:-1], "search_mode")]
    return any(isinstance(mode, Choices) and mode.holds("hybrid") for mode in modes)


def _most(axis: Axis) -> float:
    domain = axis.domain
    if isinstance(domain, Choices):
        return max(float(value) for value in domain.values)
    return domain.high


def _and(keys: Sequence[str]) -> str:
    return " and ".join(f"`{key}`" for key in keys)
