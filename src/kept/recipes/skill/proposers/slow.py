"""What whole epochs teach: guidance in a protected region, the teacher's own notes, a look back.

Guidance and the look back are candidates like any other, and go through the gate. Notes change no
artifact.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

from kept.core.case import Case
from kept.core.edit import Fill
from kept.core.ports import Scope
from kept.core.proposal import Brief, Note, Proposal, ProposerReply, Skip
from kept.core.rollout import Failure
from kept.core.schedules.epochs import closed_in, epoch_of
from kept.proposers.outages import outage_of
from kept.proposers.proposers_fitting import Item
from kept.recipes.skill.document import SKILL, SLOW_UPDATE, region_text, without_markers
from kept.recipes.skill.proposers.analyst import skill_items
from kept.recipes.skill.proposers.buffer import (
    META_SKILL,
    about_of,
    item_line,
    memory_of,
    outcome_of,
)
from kept.recipes.skill.proposers.comparing import Comparison, plain
from kept.recipes.skill.proposers.modes import PATCH, TEXT, shape
from kept.recipes.skill.proposers.teacher import Desk, Teacher, Wanted, is_broken, words, words_of
from kept.recipes.skill.proposers.update import update_by_edits

GUIDANCE = shape(reasoning=TEXT, slow_update_content=TEXT)
NOTES = shape(reasoning=TEXT, meta_skill_content=TEXT)


def _unheard(failure: Failure, about: dict[str, Any]) -> Skip | Failure:
    """An outage is a failure; a reply of no use is a turn that comes to nothing."""
    if is_broken(failure) or failure.outage:
        return failure
    return Skip(f"the teacher gave no answer of use ({words_of(failure)})", about=about)


@dataclass(frozen=True, slots=True)
class SlowUpdate:
    """Implements `kept.core.ports.Proposer`: writes guidance into its region."""

    teacher: Teacher
    comparison: Comparison
    name: str = "slow_update"
    serial: bool = False

    async def propose(self, brief: Brief, scope: Scope) -> ProposerReply:
        """Guidance by what two epochs came to on the same cases."""
        ask = self.comparison.asks(brief)
        if ask is not None:
            return ask
        rows = self.comparison.compared(brief)
        about: dict[str, Any] = {**brief.turn.settings, "pairs": plain(rows)}
        if not rows:
            why = "no case of the sample could be run with both skills"
            return outage_of(brief) or Skip(why, about=about)
        desk = Desk(self.teacher, brief, scope)
        old = region_text(brief.incumbent[SKILL], SLOW_UPDATE)
        items = [*self.comparison.items(brief, rows), *_guidance(old)]
        said = await desk.ask("slow_update", desk.prompt("slow_update"), items, Wanted(GUIDANCE))
        if isinstance(said, Failure):
            return _unheard(said, about)
        about["reasoning"] = said.data["reasoning"]
        text = without_markers(said.data["slow_update_content"]).strip()
        if not text or text == old:
            return Skip("there is nothing new to say of the epoch", about=about)
        about["slow_update_content"] = text
        edit = Fill(SKILL, SLOW_UPDATE.begin, SLOW_UPDATE.end, text)
        return Proposal((edit,), why=said.data["reasoning"], unseen=said.unseen, about=about)

    def most_asked(self, train: tuple[Case, ...]) -> int:
        """Rollouts that one turn asks for at most."""
        return 2 * min(len(train), self.comparison.samples)


def _guidance(old: str) -> list[Item]:
    return [Item("guidance", "## The guidance so far", old)] if old else []


@dataclass(frozen=True, slots=True)
class MetaSkill:
    """Implements `kept.core.ports.Proposer`: notes for the teacher's next epoch."""

    teacher: Teacher
    comparison: Comparison
    name: str = META_SKILL
    serial: bool = False

    async def propose(self, brief: Brief, scope: Scope) -> ProposerReply:
        """What is worth remembering of how the skill is improved."""
        ask = self.comparison.asks(brief)
        if ask is not None:
            return ask
        rows = self.comparison.compared(brief)
        about: dict[str, Any] = {**brief.turn.settings, "pairs": plain(rows)}
        desk = Desk(self.teacher, brief, scope)
        items = [*self.comparison.items(brief, rows), *_epoch(brief)]
        if memory := memory_of(brief.memory):
            items.append(Item("meta skill", "## Your notes so far", memory))
        said = await desk.ask("meta_skill", desk.prompt("meta_skill"), items, Wanted(NOTES))
        if isinstance(said, Failure):
            return _unheard(said, about)
        about["reasoning"] = said.data["reasoning"]
        text = said.data["meta_skill_content"].strip()
        if not text:
            return Skip("there is nothing to note", about=about)
        return Note(text, META_SKILL, {**about, "meta_skill_content": text})

    def most_asked(self, train: tuple[Case, ...]) -> int:
        """Rollouts that one turn asks for at most."""
        return 2 * min(len(train), self.comparison.samples)


def _epoch(brief: Brief) -> Iterator[Item]:
    """The steps of the epoch, the last first: those before are the first to be left out."""
    epoch = cast("int", brief.turn.settings["epoch"])
    for step in reversed(closed_in(brief.closed, epoch)):
        about = about_of(step)
        lines = [outcome_of(step, brief.objective)]
        digest = cast("dict[str, Any]", about.get("digest") or {})
        lines += [f"- saw: {one['pattern']}" for one in digest.get("failure_patterns", ())]
        lines += [f"- {item_line(item)}" for item in about.get("items", ())]
        yield Item("step", f"## Step {step.turn.settings.get('step')}", "\n".join(lines))


@dataclass(frozen=True, slots=True)
class MetaReflect:
    """Implements `kept.core.ports.Proposer`: edits that only a whole epoch suggests."""

    teacher: Teacher
    max_edits: int = 8
    name: str = "meta_reflect"
    serial: bool = False

    async def propose(self, brief: Brief, scope: Scope) -> ProposerReply:
        """A few edits by all steps of the epoch."""
        steps = [*_epoch(brief)]
        about: dict[str, Any] = {**brief.turn.settings}
        if not steps:
            return Skip("the epoch had no step", about=about)
        desk = Desk(self.teacher, brief, scope)
        context = [*skill_items(brief)]
        if last := last_summary(brief):
            context.append(Item("summary", "## What you said of the last epoch", last))
        budget = words("## Edit Budget", f"At most {self.max_edits} edits.")
        files = sorted(brief.rules.artifacts)
        schema = shape(meta_summary=TEXT, patch=PATCH.patch_schema(files))
        said = await desk.ask(
            "meta_reflect", desk.prompt("meta_reflect"), [*context, budget, *steps], Wanted(schema)
        )
        if isinstance(said, Failure):
            return _unheard(said, about)
        about["meta_summary"] = said.data["meta_summary"]
        given = said.data["patch"]["edits"]
        items = [
            {**item, "support_count": 0, "source_type": "failure", "merge_level": 0}
            for item in given[: self.max_edits]
        ]
        if len(given) > len(items):
            about["over_budget"] = len(given) - len(items)
        if not items:
            return Skip("the epoch suggests no further edit", about=about)
        made = await update_by_edits(desk, items, context)
        if isinstance(made, Failure):
            return made
        about |= {"items": made.items, "said": made.said, "patch": said.data["patch"]}
        why = said.data["patch"]["reasoning"]
        return Proposal(made.edits, why=why, unseen=said.unseen, about=about)


def last_summary(brief: Brief) -> str:
    """What the look back on the epoch before said."""
    epoch = cast("int", brief.turn.settings["epoch"])
    for step in reversed(brief.closed):
        mine = epoch_of(step.turn.phase)
        if mine and mine < epoch and step.turn.proposer == "meta_reflect":
            return str(about_of(step).get("meta_summary", ""))
    return ""
