"""Select: as many items as the step may keep, ranked by the teacher.

Places that name no item, or one that is named already, are dropped and reported. A list of which
nothing is left, or too much, is asked for again: items are never cut off in silence. Where the
teacher has no list of use, those with most cases behind them are taken.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kept.core.rollout import Failure
from kept.proposers.proposers_fitting import Item
from kept.recipes.skill.proposers.aggregate import Items, numbered
from kept.recipes.skill.proposers.modes import (
    ANY_LIST,
    COUNT,
    TEXT,
    Update,
    places_in,
    rows,
    shape,
    shown_places,
)
from kept.recipes.skill.proposers.teacher import Desk, Wanted, is_broken, words, words_of

SELECTION = shape(reasoning=TEXT, selected_indices=rows(COUNT))
_ANY_PLACES = shape(reasoning=TEXT, selected_indices=ANY_LIST)


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
        Wanted(
            SELECTION,
            lambda data: wrong_with(data["selected_indices"], len(items), most),
            held_to=_ANY_PLACES,
        ),
    )
    if isinstance(said, Failure):
        if is_broken(said):
            return said
        await desk.do_without("select", said)
        order = sorted(range(len(items)), key=lambda n: _worth(items[n]))[:most]
        why = f"no ranking could be used ({words_of(said)}): taken by the cases behind them"
        return Selected([items[n] for n in order], indices=order, by="support", said=why)
    chosen, dropped = places_in(said.data["selected_indices"], len(items))
    found = [items[n] for n in chosen]
    selected = Selected(found, said.data["reasoning"], chosen, "ranked")
    if dropped:
        listed = shown_places(dropped)
        selected.said = f"dropped from the ranking of {len(items)} {update.label}: {listed}"
    return selected


def wrong_with(chosen: Sequence[object], there: int, most: int) -> str:
    """Why a list of places cannot be used; empty where it can."""
    usable, dropped = places_in(chosen, there)
    if dropped and not usable:
        return f"`selected_indices` names no place from 0 to {there - 1}"
    if not usable:
        return "`selected_indices` is empty"
    return f"`selected_indices` has {len(usable)}, at most {most}" if len(usable) > most else ""


def _worth(item: dict[str, Any]) -> tuple[bool, int]:
    return item["source_type"] != "failure", -item["support_count"]
