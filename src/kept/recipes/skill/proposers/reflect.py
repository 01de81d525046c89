"""Reflect: analysts look at minibatches, failures and successes apart, all at the same time.

A reply that cannot be used, or an outage, costs its minibatch alone, and is told; an outage that
leaves none is a failure. Whose patch it is
and how many cases stand behind it is written down by code.
"""

import asyncio
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from kept.core.rollout import Failure
from kept.models.window import tokens_of
from kept.proposers.proposers_fitting import Item
from kept.recipes.skill.proposers.analyst import Row, Sight, analyst_items
from kept.recipes.skill.proposers.lapses import Lapses
from kept.recipes.skill.proposers.modes import SOURCES, Source, Update, analyst_schema, without_text
from kept.recipes.skill.proposers.teacher import Desk, Said, Wanted, is_broken, rewriting, words_of

_PROMPTS: dict[Source, str] = {"failure": "analyst_error", "success": "analyst_success"}
_SHORT: dict[Source, str] = {"failure": "fail", "success": "succ"}


class Minibatch(NamedTuple):
    """Rollouts that one analyst looks at."""

    name: str
    source: Source
    rows: list[Row]


@dataclass(frozen=True, slots=True)
class Analysts:
    """How a batch is looked at."""

    sight: Sight
    update: Update
    size: int = 8
    """Rollouts for each of them."""
    failure_only: bool = False
    lapses: Lapses | None = None
    """Where lapses are told apart from defects."""


def minibatches(
    parts: Sequence[Sequence[Row]], size: int, seed: int, *, failure_only: bool
) -> list[Minibatch]:
    """The rollouts of a step, cut up the same way whenever that is done."""
    found: list[Minibatch] = []
    for more, source in enumerate(SOURCES):
        if source == "success" and failure_only:
            continue
        number = 0
        for at, part in enumerate(parts):
            mine = [row for row in part if row.failed == (source == "failure")]
            random.Random(f"{seed}/{at}/{more}").shuffle(mine)
            for start in range(0, len(mine), size):
                name = f"minibatch_{_SHORT[source]}_{number:03}"
                found.append(Minibatch(name, source, mine[start : start + size]))
                number += 1
    return found


Patch = dict[str, Any]
"""What one analyst said, with what code knows of it; `error` where it said nothing of use."""


async def reflect(
    desk: Desk, analysts: Analysts, groups: Sequence[Minibatch], front: Sequence[Item], most: int
) -> list[Patch] | Failure:
    """A patch for each minibatch; a failure where nobody is there to answer any of them."""
    asked = [_analyse(desk, analysts, group, front, most) for group in groups]
    found = await asyncio.gather(*asked)
    failures = [one for one in found if isinstance(one, Failure)]
    all_lost = len(failures) == len(found)
    for one in failures:
        if is_broken(one) or (all_lost and one.outage):
            return one
    patches: list[Patch] = []
    for group, one in zip(groups, found, strict=True):
        cases = [row.case.id for row in group.rows]
        patch: Patch = {"name": group.name, "source_type": group.source, "batch_size": len(cases)}
        patch["cases"] = cases
        if isinstance(one, Failure):
            await desk.do_without(_place(group), one)
            patches.append({**patch, "error": words_of(one)})
        else:
            patches.append(patch | one)
    return patches


def _place(group: Minibatch) -> str:
    return f"reflect/{group.name}"


async def _analyse(
    desk: Desk, analysts: Analysts, group: Minibatch, front: Sequence[Item], most: int
) -> Patch | Failure:
    update, lapses = analysts.update, analysts.lapses
    notes = lapses is not None and lapses.asks(group.source) and update.capped
    system = desk.prompt(_PROMPTS[group.source], update.suffix)
    if notes:
        system = f"{system}\n\n{desk.prompt(f'lapses_{group.source}')}"
    files = sorted(desk.brief.rules.artifacts)
    schema = analyst_schema(update, group.source, files, notes=notes)
    wanted = Wanted(schema)
    if not update.capped:
        wanted = rewriting(desk, schema, lambda data: without_text(data["patch"][update.key]))
    room = desk.teacher.room(wanted)
    if room is not None:
        room -= tokens_of(system) + tokens_of(json.dumps(schema))
    pages = analyst_items(group.rows, analysts.sight, front, room)
    said = await desk.ask(_place(group), system, pages.items, wanted)
    if isinstance(said, Failure) and said.kind == "context":
        # nobody knew how much it reads: half of it, by whole rollouts, was too much as well
        room = sum(item.tokens for item in pages.items) // 4
        pages = analyst_items(group.rows, analysts.sight, front, room)
        said = await desk.ask(f"{_place(group)}/shorter", system, pages.items, wanted)
    if isinstance(said, Failure):
        return said
    about: Patch = {"cut_turns": pages.cut} if pages.cut else {}
    if said.unseen:
        # what it was not shown does not speak for what it says
        shown = {id(item) for item in said.shown}
        told = zip(group.rows, pages.items[-len(group.rows) :], strict=True)
        about["cases"] = [row.case.id for row, item in told if id(item) in shown]
    return about | _read(said, update, most, notes=notes)


def _read(said: Said, update: Update, most: int, *, notes: bool) -> Patch:
    """What is read of a reply; no more items than the budget, and the rest is counted."""
    data = said.data
    found: Patch = {k: data[k] for k in ("failure_summary", "success_patterns") if k in data}
    patch: Patch = data.get("patch") or {}
    items: list[Patch] = list(patch.get(update.key) or ())
    kept = items[: most if update.capped else 1]
    found["patch"] = {"reasoning": patch.get("reasoning", ""), update.key: kept}
    if len(kept) < len(items):
        found["over_budget"] = len(items) - len(kept)
    if said.unseen:
        found["unseen"] = said.unseen
    if notes:
        given = data.get("appendix_notes") or ()
        found["appendix_notes"] = [note for note in given if note.strip()]
    return found


def digest(patches: Sequence[Patch], rows: Sequence[Row], missing: int) -> dict[str, Any]:
    """What a step saw, for later ones: each pattern with the cases that its analyst was shown."""
    patterns = [
        {
            "pattern": f"{one['failure_type']}: {one['description']}",
            # a model may say more than it was shown
            "count": min(one["count"], len(patch["cases"])),
            "task_ids": patch["cases"],
        }
        for patch in patches
        for one in patch.get("failure_summary", ())
    ]
    failed = sum(row.failed for row in rows)
    found: dict[str, Any] = {"n_total": len(rows), "n_fail": failed}
    found["failure_patterns"] = patterns
    return found | ({"missing": missing} if missing else {})
