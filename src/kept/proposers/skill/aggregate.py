"""Aggregate: many patches become one, group by group and level by level, failures first.

A merger says which of the numbered items each of its own comes from. From that, code adds up how
many cases stand behind it and whether failures do; the model's word is not asked for either. What
no merged item comes from is named. Where a merger says nothing of use, items are put in a row.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from kept.core.rollout import Failure
from kept.proposers.fitting import Item
from kept.proposers.skill.modes import COUNT, TEXT, Source, Update, rows, shape, without_text
from kept.proposers.skill.teacher import Desk, Wanted, is_broken, words, words_of

OWN = ("support_count", "source_type", "merge_level")
"""What code writes into an item."""

FINAL = 99
"""The level of the merger that puts failures and successes together."""

Items = list[dict[str, Any]]


@dataclass(slots=True)
class Merged:
    """What became of all patches."""

    items: Items = field(default_factory=list[dict[str, Any]])
    reasons: dict[str, str] = field(default_factory=dict[str, str])
    """Of each merger, by its place."""
    said: list[str] = field(default_factory=list[str])
    """What should be known of the way there: fallbacks, items that were left out."""

    @property
    def reasoning(self) -> str:
        """Of the last merger; by place, as those in flight together end in any order."""
        last = "final" if "final" in self.reasons else max(self.reasons, default="")
        return self.reasons.get(last, "")


@dataclass(frozen=True, slots=True)
class _Merger:
    """Puts items together, and writes down what happened on the way."""

    desk: Desk
    update: Update
    front: Sequence[Item]
    merged: Merged

    async def levels(self, source: Source, patches: Sequence[Items], size: int) -> Items | Failure:
        """One list from the patches of a kind: in parallel on every level, until one is left."""
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
        """One list of several."""
        update, flat = self.update, [item for part in parts for item in part]
        if len(parts) == 1 or len(flat) < 2:
            return flat
        files = sorted(self.desk.brief.rules.artifacts)
        properties: Any = update.items_schema(files)["properties"]
        item = shape(**{"from": rows(COUNT)}, **properties)
        said = await self.desk.ask(
            f"merge/{where}",
            self.desk.prompt(f"merge_{where.partition('/')[0]}", update.suffix),
            [*self.front, words(f"## The {len(flat)} {update.label} to merge", numbered(flat))],
            Wanted(shape(reasoning=TEXT, **{update.key: rows(item)}))
            if update.capped
            else self.desk.whole_skill(
                shape(reasoning=TEXT, **{update.key: rows(item, 1)}),
                lambda data: without_text(data[update.key]),
            ),
        )
        if isinstance(said, Failure):
            if is_broken(said):
                return said
            await self.desk.do_without(f"merge/{where}", said)
            why = f"merge {where}: put in a row, as the merger failed ({words_of(said)})"
            self.merged.said.append(why)
            return in_a_row(flat) if update.capped else flat[:1]
        self.merged.reasons[where] = said.data["reasoning"]
        made = said.data[update.key][: None if update.capped else 1]
        used = {n for one in made for n in one["from"] if n < len(flat)}
        if lost := [n for n in range(len(flat)) if n not in used]:
            left_out = f"left out {', '.join(map(str, lost))} of {len(flat)}"
            self.merged.said.append(f"merge {where}: {left_out}")
        return [_supported(one, flat, level) for one in made]


async def aggregate(
    desk: Desk,
    update: Update,
    groups: Mapping[Source, Sequence[Items]],
    front: Sequence[Item],
    size: int,
) -> Merged | Failure:
    """One list of items from all patches of both kinds."""
    merger = _Merger(desk, update, front, Merged())
    failing = merger.levels("failure", groups.get("failure", ()), size)
    passing = merger.levels("success", groups.get("success", ()), size)
    found = await asyncio.gather(failing, passing)
    for one in found:
        if isinstance(one, Failure):
            return one
    parts = [one for one in found if not isinstance(one, Failure) and one]
    together = await merger.merge("final", parts, FINAL) if parts else []
    if isinstance(together, Failure):
        return together
    merger.merged.said.sort()  # calls in flight together end in any order
    merger.merged.items = together
    return merger.merged


def _supported(made: Mapping[str, Any], flat: Items, level: int) -> dict[str, Any]:
    """An item with what stands behind it, from those that it says it comes from."""
    places = cast("list[int]", made["from"])
    sources = [flat[n] for n in dict.fromkeys(places) if n < len(flat)]
    failing = any(one["source_type"] == "failure" for one in sources)
    return {
        **{key: value for key, value in made.items() if key != "from"},
        # nothing that was seen stands behind one that comes from nowhere
        "support_count": sum(one["support_count"] for one in sources),
        "source_type": "failure" if failing else "success",
        "merge_level": level,
    }


def in_a_row(items: Items) -> Items:
    """All of them, failures first; equal ones once, with what stands behind both."""
    found: dict[str, dict[str, Any]] = {}
    for item in sorted(items, key=lambda one: one["source_type"] != "failure"):
        key = json.dumps({k: v for k, v in item.items() if k not in OWN}, sort_keys=True)
        if key in found:
            found[key]["support_count"] += item["support_count"]
        else:
            found[key] = dict(item)
    return list(found.values())


def numbered(items: Items) -> str:
    """Items as a model is shown them."""
    return "\n".join(f"{n}: {json.dumps(item, ensure_ascii=False)}" for n, item in enumerate(items))
