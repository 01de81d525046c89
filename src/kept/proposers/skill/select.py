"""Select: as many items as the step may keep, ranked by the teacher.

A list of places that cannot be used is asked for again, and then told: items are never cut off in
silence. Where the teacher has no list of use, those with most cases behind them are taken.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kept.core.rollout import Failure
from kept.proposers.fitting import Item
from kept.proposers.skill.aggregate import Items, numbered
from kept.proposers.skill.modes import COUNT, TEXT, Update, rows, shape
from kept.proposers.skill.teacher import Desk, Wanted, is_broken, words, words_of

SELECTION = shape(reasoning=TEXT, selected_indices=rows(COUNT))


@dataclass(slots=True)
class Selected:
    """What a step goes on with."""

    items: Items
    reasoning: str = ""
    indices: list[int] = field(default_factory=list[int])
    by: str = "all"
    """`all` that there were, as `ranked`, or by `support` where no ranking could be used."""
    said: str = ""


async def select(
    desk: Desk, update: Update, items: Items, most: int | None, front: Sequence[Item]
) -> Selected | Failure:
    """At most so many of them; all where there is no limit."""
    if most is None or len(items) <= most:
        return Selected(items, indices=list(range(len(items))))
    said = await desk.ask(
        "select",
        desk.prompt("ranking", update.suffix),
        [
            *front,
            words(f"## The {len(items)} {update.label} to choose from", numbered(items)),
            words("## How many", f"At most {most}, the most valuable first."),
        ],
        Wanted(SELECTION, lambda data: wrong_with(data["selected_indices"], len(items), most)),
    )
    if isinstance(said, Failure):
        if is_broken(said):
            return said
        await desk.do_without("select", said)
        order = sorted(range(len(items)), key=lambda n: _worth(items[n]))[:most]
        why = f"no ranking could be used ({words_of(said)}): taken by the cases behind them"
        return Selected([items[n] for n in order], indices=order, by="support", said=why)
    chosen = said.data["selected_indices"]
    return Selected([items[n] for n in chosen], said.data["reasoning"], chosen, "ranked")


def wrong_with(chosen: Sequence[int], there: int, most: int) -> str:
    """Why a list of places cannot be used; empty where it can."""
    outside = [n for n in chosen if n >= there]
    if not chosen:
        return "`selected_indices` is empty"
    if outside:
        return f"`selected_indices` has {outside[0]}, and the last place is {there - 1}"
    if len(set(chosen)) < len(chosen):
        return "`selected_indices` names a place twice"
    return f"`selected_indices` has {len(chosen)}, at most {most}" if len(chosen) > most else ""


def _worth(item: dict[str, Any]) -> tuple[bool, int]:
    return item["source_type"] != "failure", -item["support_count"]
