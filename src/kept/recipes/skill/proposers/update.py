"""Update: from what was chosen to edits of the skill, with a report for each.

An edit that does not apply is shown to the teacher once more, with the reason. Where the skill is
written anew, its protected regions are put back by code.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kept.core.edit import Edit, Write
from kept.core.rollout import Failure
from kept.core.words import count
from kept.proposers.proposers_fitting import Item
from kept.recipes.skill.document import SKILL, Tried, rewritten, try_edits
from kept.recipes.skill.proposers.aggregate import Items, shown
from kept.recipes.skill.proposers.modes import COUNT, PATCH, TEXT, rows, shape, without_text
from kept.recipes.skill.proposers.teacher import Desk, Wanted, is_broken, rewriting, words, words_of

REWRITTEN = shape(reasoning=TEXT, change_summary=rows(TEXT), new_skill=TEXT)


@dataclass(slots=True)
class Updated:
    """Edits, and how they came about."""

    edits: tuple[Edit, ...]
    items: Items
    """One for each edit, as it was in the end."""
    said: list[str] = field(default_factory=list[str])
    rewrite: dict[str, Any] = field(default_factory=dict[str, Any])


async def update_by_edits(desk: Desk, items: Items, front: Sequence[Item]) -> Updated | Failure:
    """The items as edits; those that do not apply are mended once, if they can be."""
    brief = desk.brief
    tried = try_edits(brief.incumbent, items, brief.rules)
    failing = [n for n in tried.failing if tried.reports[n].fate != "no change"]
    if not failing or desk.teacher.rounds < 2:
        return Updated(tried.edits, items, _unmade(tried))
    mended = await _repair(desk, items, tried, failing, front)
    if isinstance(mended, Failure):
        none_applies = len(tried.failing) == len(items)
        if is_broken(mended) or (mended.outage and none_applies):
            return mended
        await desk.do_without("repair", mended)
        said = [f"{count(len(failing), 'edit')} could not be mended ({words_of(mended)})"]
        return Updated(tried.edits, items, said + _unmade(tried))
    fixed = [{**item, **mended.get(n, {})} for n, item in enumerate(items)]
    again = try_edits(brief.incumbent, fixed, brief.rules)
    return Updated(again.edits, fixed, _unmade(again))


def _unmade(tried: Tried) -> list[str]:
    return [
        f"edit {n} does not apply: {tried.reports[n].fate} {tried.reports[n].detail}".strip()
        for n in tried.failing
    ]


async def _repair(
    desk: Desk, items: Items, tried: Tried, failing: Sequence[int], front: Sequence[Item]
) -> dict[int, dict[str, Any]] | Failure:
    """One call for all edits of the step that do not apply; what it says of others is not read."""
    lines: list[str] = []
    for n in failing:
        report = tried.reports[n]
        lines.append(f"{n}: {shown(items[n])}")
        lines.append(f"   does not apply: {report.fate} {report.detail}".rstrip())
    files = sorted(desk.brief.rules.artifacts)
    properties: Any = PATCH.items_schema(files)["properties"]
    texts = tried.candidate.texts
    paths = {tried.reports[n].edit.path for n in failing} & texts.keys()
    said = await desk.ask(
        "repair",
        desk.prompt("repair"),
        [
            *front,
            *(
                Item("skill", f"## `{path}` with the other edits", texts[path], needed=True)
                for path in sorted(paths)
            ),
            words("## Edits that do not apply", "\n".join(lines)),
        ],
        Wanted(shape(edits=rows(shape(index=COUNT, **properties)))),
    )
    if isinstance(said, Failure):
        return said
    found: dict[int, dict[str, Any]] = {}
    for row in said.data["edits"]:
        if row["index"] in failing:
            new = {key: value for key, value in row.items() if key != "index"}
            found[row["index"]] = {**new, "repaired": True}
    return found


async def update_by_rewrite(desk: Desk, items: Items, front: Sequence[Item]) -> Updated | Failure:
    """The whole skill, written anew by suggestions."""
    told = "\n".join(f"- {shown(item)}" for item in items)
    said = await desk.ask(
        "rewrite",
        desk.prompt("rewrite_skill"),
        [*front, words("## What should change", told)],
        rewriting(desk, REWRITTEN, lambda data: without_text([data])),
    )
    if isinstance(said, Failure):
        if is_broken(said) or said.outage:
            return said
        return Updated((), items, [f"the skill was not written anew ({words_of(said)})"])
    return whole(desk, items, said.data)


def whole(desk: Desk, items: Items, data: dict[str, Any]) -> Updated:
    """The edit that puts a new skill in the place of the old one, regions as they were."""
    new = rewritten(desk.brief.incumbent[SKILL], str(data["new_skill"]))
    rewrite = {key: data[key] for key in ("reasoning", "change_summary") if key in data}
    return Updated((Write(SKILL, new),), items, rewrite={**rewrite, "new_skill": new})
