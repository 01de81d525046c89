"""Update: edits of the skill with a report for each, and the appendix of reminders.

A failing edit is shown to the teacher once more, with the reason. If the skill is rewritten, code
restores its protected regions.

Reminders of an epoch go through the gate as one candidate. With `flush` they are taken after
every step without a comparison, as in the source of the method. The next measurement includes
them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kept.core.edit import Edit, Fill, Write
from kept.core.ports import Scope
from kept.core.proposal import Brief, ClosedStep, Proposal, ProposerReply, Skip
from kept.core.rollout import Failure
from kept.core.schedules.epochs import closed_in
from kept.core.text import count
from kept.proposers.prompt_items import Item
from kept.recipes.skill.document import APPENDIX, SKILL, Tried, rewritten, try_edits
from kept.recipes.skill.proposers.aggregate import Items, shown
from kept.recipes.skill.proposers.analyst import about_of, skill_items
from kept.recipes.skill.proposers.reflect import Lapses, appendix_text, fresh_notes, notes_in
from kept.recipes.skill.proposers.teacher import (
    COUNT,
    PATCH,
    TEXT,
    Desk,
    Teacher,
    Wanted,
    is_broken,
    rewriting,
    rows,
    shape,
    without_text,
    words,
    words_of,
)

CONSOLIDATED = shape(notes=rows(TEXT))


@dataclass(frozen=True, slots=True)
class Appendix:
    """Implements `kept.core.ports.Proposer`: writes reminders into the appendix."""

    teacher: Teacher
    lapses: Lapses
    flush: bool = False
    """True to take the last step's reminders unchecked; else those of the epoch are raced."""
    name: str = "appendix"
    serial: bool = False

    async def propose(self, brief: Brief, scope: Scope) -> ProposerReply:
        """Propose the appendix with its old and the new reminders."""
        about: dict[str, Any] = {**brief.turn.settings}
        old = notes_in(brief.incumbent[SKILL])
        steps = self._steps(brief)
        fresh = fresh_notes((n for step in steps for n in about_of(step).get("notes", ())), old)
        if not fresh:
            return Skip("no lapse that is not in the appendix already", about=about)
        notes = [*old, *fresh]
        about |= {"fresh": fresh, "notes": notes}
        if self.lapses.threshold and len(notes) > self.lapses.threshold:
            shorter = await self._consolidated(Desk(self.teacher, brief, scope), notes, about)
            if isinstance(shorter, Failure):
                return shorter
            notes = shorter
        text = appendix_text(notes)
        why = f"{count(len(fresh), 'reminder')} of rules that were there and not followed"
        edit = Fill(SKILL, APPENDIX.begin, APPENDIX.end, text)
        return Proposal((edit,), why=why, about=about, ungated=brief.turn.takes)

    def _steps(self, brief: Brief) -> list[ClosedStep]:
        epoch = brief.turn.setting("epoch", int) or 0
        steps = closed_in(brief.history, epoch)
        return steps[-1:] if self.flush else steps

    async def _consolidated(
        self, desk: Desk, notes: list[str], about: dict[str, Any]
    ) -> list[str] | Failure:
        """Return a shorter list with the same content; the long one if the reply is unusable."""
        listed = words("## The reminders", "\n".join(f"- {note}" for note in notes))
        said = await desk.ask(
            "consolidate",
            desk.prompt("consolidate"),
            [*skill_items(desk.brief), listed],
            Wanted(CONSOLIDATED),
        )
        if isinstance(said, Failure):
            if is_broken(said):
                return said
            about["said"] = [f"the reminders were not put together ({words_of(said)})"]
            return notes
        shorter = fresh_notes(said.data["notes"], ())
        if not shorter or len(shorter) >= len(notes):
            about["said"] = ["what was put together is no shorter, and was not taken"]
            return notes
        about["consolidated"] = shorter
        return shorter


REWRITTEN = shape(reasoning=TEXT, change_summary=rows(TEXT), new_skill=TEXT)


@dataclass(slots=True)
class Updated:
    """Edits, with their items and notes on how they were made."""

    edits: tuple[Edit, ...]
    items: Items
    """Final item of each edit."""
    said: list[str] = field(default_factory=list[str])
    rewrite: dict[str, Any] = field(default_factory=dict[str, Any])


async def update_by_edits(desk: Desk, items: Items, front: Sequence[Item]) -> Updated | Failure:
    """Turn items into edits; one request tries to fix those that do not apply."""
    brief = desk.brief
    tried = try_edits(brief.incumbent, items, brief.rules)
    # an edit without effect needs no repair
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
    """Ask once to fix all edits that do not apply; changes of other edits are ignored."""
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
        # other edits apply, and stay as they are
        if row["index"] in failing:
            new = {key: value for key, value in row.items() if key != "index"}
            found[row["index"]] = {**new, "repaired": True}
    return found


async def update_by_rewrite(desk: Desk, items: Items, front: Sequence[Item]) -> Updated | Failure:
    """Rewrite the whole skill according to suggestions."""
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
    """Return the edit that replaces the skill by a new one and keeps the regions."""
    new = rewritten(desk.brief.incumbent[SKILL], str(data["new_skill"]))
    rewrite = {key: data[key] for key in ("reasoning", "change_summary") if key in data}
    return Updated((Write(SKILL, new),), items, rewrite={**rewrite, "new_skill": new})
