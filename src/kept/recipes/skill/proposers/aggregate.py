"""Aggregation of patches into one by groups, and selection of its items by the teacher.

Aggregate: groups are merged level by level, failures first. A merger names the numbered sources
of each item. Code derives from them the supporting cases, each counted once, and whether failures
are among them. The model's own counts are not used. Unused items are reported by name. If the
merger's reply is useless, items are concatenated.

Select: the teacher ranks at most as many items as the step may keep. Unknown and repeated places
are dropped and reported. An empty or too long list is asked for again; items are never cut off
silently. Without a usable list, the items with most supporting cases are taken.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kept.core.rollout import Failure
from kept.proposers.prompt_items import Item
from kept.recipes.skill.proposers.reflect import Patch
from kept.recipes.skill.proposers.teacher import (
    ANY_LIST,
    COUNT,
    TEXT,
    Desk,
    Source,
    Update,
    Wanted,
    is_broken,
    places_in,
    rewriting,
    rows,
    shape,
    shown_places,
    without_text,
    words,
    words_of,
)

BEHIND = "minibatches"
"""Key for the minibatches of an item, which models are not shown."""

OWN = ("support_count", "source_type", "merge_level", BEHIND)
"""Keys of an item that are written by code."""

FINAL = 99
"""Level of the last merger, which combines failures and successes."""

Items = list[dict[str, Any]]


@dataclass(slots=True)
class Merged:
    """Items merged from all patches."""

    items: Items = field(default_factory=list[dict[str, Any]])
    reasons: dict[str, str] = field(default_factory=dict[str, str])
    """Reasoning of each merger, by its place."""
    said: list[str] = field(default_factory=list[str])
    """Notes on the merge: fallbacks, and items that were left out."""

    @property
    def reasoning(self) -> str:
        """Reasoning of the last merger by place: parallel mergers end in any order."""
        last = "final" if "final" in self.reasons else max(self.reasons, default="")
        return self.reasons.get(last, "")


@dataclass(frozen=True, slots=True)
class _Merger:
    """Merges items, and records notes on the way."""

    desk: Desk
    update: Update
    front: Sequence[Item]
    cases: Mapping[str, Sequence[str]]
    """Cases of each minibatch, by its name."""
    merged: Merged

    async def levels(self, source: Source, patches: Sequence[Items], size: int) -> Items | Failure:
        """Merge the patches of a kind level by level, in parallel, until one list is left."""
        left, level = list(patches), 0
        while len(left) > 1:
            level += 1
            parts = [left[n : n + size] for n in range(0, len(left), size)]
            asked = [
                self.merge(f"{source}/{level}/{n}", part, level) for n, part in enumerate(parts)
            ]
            found = await asyncio.gather(*asked)
            for one in found:
                if isinstance(one, Failure):
                    return one
            left = [one for one in found if not isinstance(one, Failure)]
        return left[0] if left else []

    async def merge(self, where: str, parts: Sequence[Items], level: int) -> Items | Failure:
        """Merge several lists of items into one."""
        update, flat = self.update, [item for part in parts for item in part]
        if len(parts) == 1 or len(flat) < 2:
            return flat
        files = sorted(self.desk.brief.rules.artifacts)
        properties: Any = update.items_schema(files)["properties"]
        said = await self.desk.ask(
            f"merge/{where}",
            self.desk.prompt(f"merge_{where.partition('/')[0]}", update.suffix),
            [*self.front, words(f"## The {len(flat)} {update.label} to merge", numbered(flat))],
            self._wanted(properties),
        )
        if isinstance(said, Failure):
            if is_broken(said):
                return said
            await self.desk.do_without(f"merge/{where}", said)
            done = "put in a row" if update.capped else "the first stands for all"
            why = f"merge {where}: {done}, as the merger failed ({words_of(said)})"
            self.merged.said.append(why)
            return in_a_row(flat, self.cases) if update.capped else flat[:1]
        self.merged.reasons[where] = said.data["reasoning"]
        # without a cap, the answer is one whole skill
        made = said.data[update.key][: None if update.capped else 1]
        places = [places_in(one["from"], len(flat)) for one in made]
        if dropped := [one for place in places for one in place.dropped]:
            listed = shown_places(dropped)
            self.merged.said.append(f"merge {where}: dropped from its sources: {listed}")
        used = {n for place in places for n in place.usable}
        if lost := [n for n in range(len(flat)) if n not in used]:
            left_out = f"left out {', '.join(map(str, lost))} of {len(flat)}"
            self.merged.said.append(f"merge {where}: {left_out}")
        return [self._supported(one, flat, level) for one in made]

    def _wanted(self, properties: Mapping[str, object]) -> Wanted:
        # a strict schema for the model, and one that takes any places for validation
        key, least = self.update.key, 0 if self.update.capped else 1
        schema, held_to = (
            shape(reasoning=TEXT, **{key: rows(shape(**{"from": places}, **properties), least)})
            for places in (rows(COUNT), ANY_LIST)
        )
        if self.update.capped:
            return Wanted(schema, held_to=held_to)
        wanted = rewriting(self.desk, schema, lambda data: without_text(data[key]))
        return replace(wanted, held_to=held_to)

    def _supported(self, made: Mapping[str, Any], flat: Items, level: int) -> dict[str, Any]:
        """Return a merged item with the support of the items that it names as sources."""
        sources = [flat[n] for n in places_in(made["from"], len(flat)).usable]
        failing = any(one["source_type"] == "failure" for one in sources)
        return {
            **{key: value for key, value in made.items() if key != "from"},
            # an item without valid sources has no supporting case
            **backing(sources, self.cases),
            "source_type": "failure" if failing else "success",
            "merge_level": level,
        }


async def aggregate(
    desk: Desk, update: Update, patches: Sequence[Patch], front: Sequence[Item], size: int
) -> Merged | Failure:
    """Merge the items of all patches, of failures and of successes."""
    cases = {patch["name"]: patch["cases"] for patch in patches}
    merger = _Merger(desk, update, front, cases, Merged())
    failing = merger.levels("failure", items_of(patches, "failure", update), size)
    passing = merger.levels("success", items_of(patches, "success", update), size)
    found = await asyncio.gather(failing, passing)
    for one in found:
        if isinstance(one, Failure):
            return one
    parts = [one for one in found if not isinstance(one, Failure) and one]
    together = await merger.merge("final", parts, FINAL) if parts else []
    if isinstance(together, Failure):
        return together
    merger.merged.said.sort()  # parallel calls end in any order
    merger.merged.items = together
    return merger.merged


def items_of(patches: Sequence[Patch], source: Source, update: Update) -> list[Items]:
    """Return the items of each patch of a kind, with the support that code adds."""
    found: list[Items] = []
    for patch in patches:
        if patch["source_type"] != source or "error" in patch:
            continue
        own: dict[str, Any] = {"support_count": patch["batch_size"], "source_type": source}
        own |= {"merge_level": 0, BEHIND: [patch["name"]]}
        if items := [{**item, **own} for item in patch["patch"][update.key]]:
            found.append(items)
    return found


def backing(sources: Items, cases: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return the minibatches behind items, and the number of their distinct cases."""
    names = list(dict.fromkeys(name for one in sources for name in one[BEHIND]))
    return {"support_count": len({case for name in names for case in cases[name]}), BEHIND: names}


def in_a_row(items: Items, cases: Mapping[str, Sequence[str]]) -> Items:
    """Concatenate items, failures first; equal items become one with the support of all."""
    found: dict[str, Items] = {}
    for item in sorted(items, key=lambda one: one["source_type"] != "failure"):
        key = json.dumps({k: v for k, v in item.items() if k not in OWN}, sort_keys=True)
        found.setdefault(key, []).append(item)
    return [{**equal[0], **backing(equal, cases)} for equal in found.values()]


def shown(item: Mapping[str, Any]) -> str:
    """Return an item as models see it."""
    told = {key: value for key, value in item.items() if key != BEHIND}
    return json.dumps(told, ensure_ascii=False)


def numbered(items: Items) -> str:
    """Return items as models see them, each with its place."""
    return "\n".join(f"{n}: {shown(item)}" for n, item in enumerate(items))


SELECTION = shape(reasoning=TEXT, selected_indices=rows(COUNT))
_ANY_PLACES = shape(reasoning=TEXT, selected_indices=ANY_LIST)


@dataclass(slots=True)
class Selected:
    """Items that a step selects."""

    items: Items
    reasoning: str = ""
    indices: list[int] = field(default_factory=list[int])
    by: str = "all"
    """Way of selection: `all`, `ranked`, or `support` if no ranking could be used."""
    said: str = ""


async def select(
    desk: Desk, update: Update, items: Items, most: int | None, front: Sequence[Item]
) -> Selected | Failure:
    """Select at most `most` items by the teacher's ranking; all if there is no limit."""
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
        # failures first, then by number of supporting cases
        order = sorted(
            range(len(items)),
            key=lambda n: (items[n]["source_type"] != "failure", -items[n]["support_count"]),
        )[:most]
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
    """Return the reason why a list of places cannot be used; empty if it can."""
    usable, dropped = places_in(chosen, there)
    if dropped and not usable:
        return f"`selected_indices` names no place from 0 to {there - 1}"
    if not usable:
        return "`selected_indices` is empty"
    return f"`selected_indices` has {len(usable)}, at most {most}" if len(usable) > most else ""
