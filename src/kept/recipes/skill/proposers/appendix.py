"""Reminders of lapses, put into the appendix of the skill: those of an epoch together, or at once.

They go through the gate as one candidate. With `flush` they are taken without a comparison after
every step, as the source of the method has it: what is measured next is the skill with them.
"""

from dataclasses import dataclass
from typing import Any, cast

from kept.core.edit import Fill
from kept.core.ports import Scope
from kept.core.proposal import Brief, ClosedStep, Proposal, ProposerReply, Skip
from kept.core.rollout import Failure
from kept.core.schedules.epochs import closed_in
from kept.core.words import count
from kept.recipes.skill.document import APPENDIX, SKILL
from kept.recipes.skill.proposers.analyst import skill_items
from kept.recipes.skill.proposers.buffer import about_of
from kept.recipes.skill.proposers.lapses import Lapses, appendix_text, fresh_notes, notes_in
from kept.recipes.skill.proposers.modes import TEXT, rows, shape
from kept.recipes.skill.proposers.teacher import Desk, Teacher, Wanted, is_broken, words, words_of

CONSOLIDATED = shape(notes=rows(TEXT))


@dataclass(frozen=True, slots=True)
class Appendix:
    """Implements `kept.core.ports.Proposer`."""

    teacher: Teacher
    lapses: Lapses
    flush: bool = False
    """Whether what the last step noted is taken as it is; else all of the epoch is raced."""
    name: str = "appendix"
    serial: bool = False

    async def propose(self, brief: Brief, scope: Scope) -> ProposerReply:
        """The reminders that are new, with those that stand there."""
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
        epoch = cast("int", brief.turn.settings["epoch"])
        steps = closed_in(brief.closed, epoch)
        return steps[-1:] if self.flush else steps

    async def _consolidated(
        self, desk: Desk, notes: list[str], about: dict[str, Any]
    ) -> list[str] | Failure:
        """A shorter list that says the same; the long one where there is none of use."""
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
