"""Step of skill training: roll out a batch, reflect, aggregate, select, update.

The gate comes after it. No state is kept between calls: the batch follows from the turn, and the
memory of the epoch from the closed steps. The scope serves replies that arrived before.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from kept.core.case import Case
from kept.core.ports import Scope
from kept.core.proposal import USELESS, Ask, Brief, Proposal, ProposerReply, Skip
from kept.core.rollout import Failure, Pair
from kept.core.schedules.epochs import At, batches
from kept.core.text import count
from kept.proposers.failing_cases import outage_of
from kept.proposers.prompt_items import Item
from kept.recipes.skill.proposers.aggregate import Merged, Selected, aggregate, items_of, select
from kept.recipes.skill.proposers.analyst import (
    Row,
    front_items,
    memory_of,
    rows_of,
    skill_items,
    step_buffer,
)
from kept.recipes.skill.proposers.reflect import (
    Analysts,
    Deep,
    Patch,
    digest,
    minibatches,
    noted,
    reflect,
)
from kept.recipes.skill.proposers.teacher import SOURCES, Desk, Teacher
from kept.recipes.skill.proposers.update import Updated, update_by_edits, update_by_rewrite, whole


@dataclass(frozen=True, slots=True, kw_only=True)
class StepProposer:
    """Implements `kept.core.ports.Proposer`: proposes what a batch of rollouts suggests."""

    teacher: Teacher
    analysts: Analysts
    batch: int
    accumulation: int = 1
    run_seed: int = 0
    max_edits: int = 8
    """Edit budget in prompts of analysts; the step may keep fewer edits."""
    merge_size: int = 8
    deep: Deep | None = None
    """Deep reflection, which repeats a few rollouts with a question in them; None for none."""
    name: str = "step"
    serial: bool = False

    async def propose(self, brief: Brief, scope: Scope) -> ProposerReply:
        """Propose the change that a batch suggests."""
        parts = self._pairs(brief)
        pairs = tuple(pair for part in parts for pair in part)
        if not brief.answers:
            return Ask(brief.incumbent.id, pairs, "feedback")
        rows = [rows_of(brief, part) for part in parts]
        if not any(rows):
            about = self._about(brief, [], pairs)
            return outage_of(brief) or Skip("no case of the batch could be run", about=about)
        desk = Desk(self.teacher, brief, scope)
        return await self._looked(desk, rows, pairs)

    def most_asked(self, train: tuple[Case, ...]) -> int:
        """Return the most rollouts that one turn asks for."""
        most = min(len(train), self.batch * self.accumulation)
        return most + (0 if self.deep is None else self.deep.most_asked(most))

    def _pairs(self, brief: Brief) -> list[list[Pair]]:
        """Return the batch in parts that are analysed separately; each epoch has new rollouts."""
        turn = brief.turn
        at = At(turn.setting("epoch", int) or 0, turn.setting("step", int) or 0)
        ids = [case.id for case in brief.train]
        parts = batches(ids, at, self.batch, self.accumulation, self.run_seed)
        return [[Pair(case, at.epoch - 1) for case in part] for part in parts]

    async def _looked(
        self, desk: Desk, parts: list[list[Row]], pairs: Sequence[Pair]
    ) -> ProposerReply:
        """Reflect on the batch, with the rollouts of a probe as a further part, if wanted."""
        probe: dict[str, Any] = {}
        if self.deep is not None:
            rows = [row for part in parts for row in part]
            asked = await self.deep.ask(desk, rows, pairs, [*skill_items(desk.brief)])
            if isinstance(asked, Failure):
                return asked
            # a tuple asks for rollouts; a dict only says why there is no probe
            if isinstance(asked, tuple):
                ask, probe = asked
                if not any(answer.ask.purpose == "probe" for answer in desk.brief.answers):
                    return ask
                again = rows_of(desk.brief, ask.pairs, "probe")
                return await self._reflected(desk, parts, pairs, again, probe)
            probe = asked
        return await self._reflected(desk, parts, pairs, (), probe)

    async def _reflected(
        self,
        desk: Desk,
        parts: Sequence[Sequence[Row]],
        pairs: Sequence[Pair],
        again: Sequence[Row],
        probe: dict[str, Any],
    ) -> ProposerReply:
        brief, update = desk.brief, self.analysts.update
        rows = [row for part in parts for row in part]
        memory = memory_of(brief.memory)
        front = front_items(
            brief, update, self.max_edits, previous=step_buffer(brief), memory=memory
        )
        groups = minibatches(
            [*parts, again],
            self.analysts.size,
            brief.seed,
            failure_only=self.analysts.failure_only,
        )
        patches = await reflect(desk, self.analysts, groups, front, self.max_edits)
        if isinstance(patches, Failure):
            return patches
        about = self._about(brief, rows, pairs, patches)
        about |= {"probe": {**probe, "rollouts": len(again)}} if probe else {}
        lost = [patch["error"] for patch in patches if "error" in patch]
        if patches and len(lost) == len(patches):
            about[USELESS] = "teacher"
            return Skip(f"no analyst gave an answer of use: {lost[0]}", about=about)
        if not any(items_of(patches, source, update) for source in SOURCES):
            why = "the analysts propose no change" if patches else "every case is solved"
            return Skip(why, about=about)
        # mergers and rankers need neither the analysts' budget nor the memory of single steps
        context = [*skill_items(brief)]
        context += [Item("meta skill", "## Optimizer Meta Skill", memory)] if memory else []
        merged = await aggregate(desk, update, patches, context, self.merge_size)
        if isinstance(merged, Failure):
            return merged
        return await self._updated(desk, merged, context, about)

    async def _updated(
        self, desk: Desk, merged: Merged, context: Sequence[Item], about: dict[str, Any]
    ) -> ProposerReply:
        update = self.analysts.update
        most = desk.brief.turn.setting("max_edits", int)
        about["merged"] = {
            "reasoning": merged.reasoning,
            update.key: merged.items,
            "said": merged.said,
        }
        if not merged.items:
            about |= {"items": [], "said": merged.said}
            return Skip("the merger left no change", about=about)
        if update.capped:
            chosen = await select(desk, update, merged.items, most, context)
            if isinstance(chosen, Failure):
                return chosen
        else:
            chosen = Selected(merged.items)
        about["ranked"] = _ranked(chosen, update.key, most)
        # edits one by one, a rewrite by suggestions, or the only skill as it is
        if update.mode == "patch":
            made = await update_by_edits(desk, chosen.items, context)
        elif update.capped:
            made = await update_by_rewrite(desk, chosen.items, context)
        else:
            made = whole(desk, chosen.items, chosen.items[0])
        if isinstance(made, Failure):
            return made
        return _proposal(made, merged, chosen, about)

    def _about(
        self,
        brief: Brief,
        rows: Sequence[Row],
        pairs: Sequence[Pair],
        patches: Sequence[Patch] = (),
    ) -> dict[str, Any]:
        """Return the record of a step before its patches are merged."""
        n = max(1, len(rows))
        about: dict[str, Any] = {
            **brief.turn.settings,
            "rollout": {
                "hard": sum(row.hard for row in rows) / n,
                "soft": sum(row.soft for row in rows) / n,
                "n": len(rows),
            },
            "batches": len(self._pairs(brief)),
            "failing": [row.case.id for row in rows if row.failed],
            "patches": list(patches),
            "digest": digest(patches, rows, len(pairs) - len(rows)),
        }
        if self.analysts.lapses is not None:
            about["notes"] = noted(patches)
        return about


def _ranked(chosen: Selected, key: str, most: int | None) -> dict[str, Any]:
    return {
        "reasoning": chosen.reasoning,
        "max_edits": most,
        "selected_indices": chosen.indices,
        "by": chosen.by,
        "said": chosen.said,
        key: chosen.items,
    }


def _proposal(
    made: Updated, merged: Merged, chosen: Selected, about: dict[str, Any]
) -> Proposal | Skip:
    said = [*merged.said, *filter(None, [chosen.said]), *made.said]
    about |= {"items": made.items, "said": said}
    if made.rewrite:
        about["rewrite"] = made.rewrite
    if not made.edits:
        return Skip("; ".join(made.said) or "nothing was left to change", about=about)
    behind = sum(item["source_type"] == "failure" for item in made.items)
    why = merged.reasoning or chosen.reasoning
    if not why:
        patches = cast("list[Patch]", about["patches"])
        reasons = [str(one["patch"]["reasoning"]) for one in patches if "patch" in one]
        why = next(filter(None, reasons), "")
    why = f"{count(len(made.items), 'change')}, {behind} of them from failures. {why}".strip()
    unseen = [patch["unseen"] for patch in about["patches"] if patch.get("unseen")]
    cut = sum(patch.get("cut_turns", 0) for patch in about["patches"])
    unseen += [f"{count(cut, 'turn')} of traces"] if cut else []
    return Proposal(
        made.edits,
        why=why,
        unseen="; ".join(dict.fromkeys(unseen)),
        about=about,
    )
