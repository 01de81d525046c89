"""End of an epoch: slow update of guidance, teacher notes, look back, and its comparison.

Guidance stands in a protected region. Guidance and look back are candidates like any other and go
through the gate. Notes change no artifact.

The comparison rolls out the current skill and that of the last epoch's end on the same train
cases. The older skill is restored by undoing later keeps. Both run by Asks, on a deterministic
sample.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, cast

from kept.core.artifact import Candidate
from kept.core.case import Case
from kept.core.edit import Fill, changed_paths, invert
from kept.core.ports import Scope
from kept.core.proposal import Ask, Brief, Note, Proposal, ProposerReply, Skip
from kept.core.rollout import Failure, Pair
from kept.core.schedules.epochs import closed_in
from kept.core.turns import epoch_of
from kept.proposers.failing_cases import outage_of
from kept.proposers.prompt_items import Item
from kept.recipes.skill.document import SKILL, SLOW_UPDATE, region_text, without_markers
from kept.recipes.skill.proposers.analyst import (
    META_SKILL,
    Sight,
    about_of,
    fail_reason,
    item_line,
    memory_of,
    outcome_of,
    rows_of,
    skill_items,
)
from kept.recipes.skill.proposers.teacher import (
    PATCH,
    TEXT,
    Desk,
    Teacher,
    Wanted,
    is_broken,
    shape,
    words,
    words_of,
)
from kept.recipes.skill.proposers.update import update_by_edits

Change = Literal["improved", "regressed", "persistent_fail", "stable_success"]


class Compared(NamedTuple):
    """Results of one case with both skills."""

    case: Case
    change: Change
    before: float
    after: float
    why: str
    """Reason why the current skill does not solve it; empty if it does."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Comparison of two epochs on a sample of train cases."""

    sight: Sight
    samples: int = 20
    run_seed: int = 0

    def asks(self, brief: Brief) -> Ask | None:
        """Return the next rollouts that are needed; None if there are all."""
        pairs = self.pairs(brief)
        wanted = dict.fromkeys((past_skill(brief).id, brief.incumbent.id))
        asked = {answer.ask.candidate for answer in brief.answers}
        return next((Ask(id_, pairs, "feedback") for id_ in wanted if id_ not in asked), None)

    def pairs(self, brief: Brief) -> tuple[Pair, ...]:
        """Return a sample of the train cases for this epoch, the same for each proposer."""
        epoch = brief.turn.setting("epoch", int) or 0
        chance = random.Random(f"{self.run_seed}/{epoch}")
        drawn = chance.sample(brief.train, min(self.samples, len(brief.train)))
        # repeats are numbered by epoch: proposers of one epoch share rollouts
        return tuple(Pair(case.id, epoch - 1) for case in drawn)

    def compared(self, brief: Brief) -> list[Compared]:
        """Return the cases that have results with both skills."""
        pairs, past = self.pairs(brief), past_skill(brief).id
        before = {row.case.id: row for row in rows_of(_of(brief, past), pairs)}
        after = {row.case.id: row for row in rows_of(_of(brief, brief.incumbent.id), pairs)}
        found: list[Compared] = []
        for pair in pairs:
            then, now = before.get(pair.case), after.get(pair.case)
            if then is None or now is None:
                continue
            change = change_of(then.failed, now.failed)
            why = fail_reason(now, self.sight)
            found.append(Compared(now.case, change, then.hard, now.hard, why))
        return found

    def items(self, brief: Brief, rows: Sequence[Compared]) -> list[Item]:
        """Return both skills and the compared cases, the most informative changes first."""
        items = [*_skills(brief)]
        order: tuple[Change, ...] = ("regressed", "persistent_fail", "improved", "stable_success")
        for change in order:
            mine = [self._line(row) for row in rows if row.change == change]
            if mine:
                title = f"## {change.replace('_', ' ').capitalize()} ({len(mine)})"
                items.append(Item("cases", title, "\n".join(mine)))
        return items

    def _line(self, row: Compared) -> str:
        task = " ".join(self.sight.about(row.case).task.split())
        why = f"; {row.why}" if row.why else ""
        return f"- {row.case.id}: {task[:300]}{why}"


def _skills(brief: Brief) -> Iterator[Item]:
    """Yield the current skill with all its files, and the past texts that differ."""
    now, past = brief.incumbent, past_skill(brief)
    yield from skill_items(brief, "## The skill now")
    then = "at the end of the last epoch"
    changed = changed_paths(past, now)
    if not changed:
        yield words(f"## The skill {then}", "The same as now: nothing was kept since.")
    for path in sorted(changed, key=lambda path: path != SKILL):
        what = "The skill" if path == SKILL else f"Its file `{path}`"
        yield Item("past skill", f"## {what} {then}", past.texts.get(path, ""))


def change_of(failed_before: bool, failed_now: bool) -> Change:
    """Return the kind of change of a case between two skills."""
    if failed_before:
        return "persistent_fail" if failed_now else "improved"
    return "regressed" if failed_now else "stable_success"


def plain(rows: Sequence[Compared]) -> list[dict[str, Any]]:
    """Return the comparison for records."""
    return [
        {"id": row.case.id, "change": row.change, "before": row.before, "after": row.after}
        for row in rows
    ]


def past_skill(brief: Brief) -> Candidate:
    """Return the incumbent at the end of the last epoch."""
    epoch = brief.turn.setting("epoch", int) or 0
    # undoes the keeps since then, the latest first
    found = brief.incumbent
    for step in reversed(brief.history):
        mine = epoch_of(step.turn.phase)
        if mine and mine < epoch:
            break
        if step.verdict.outcome == "keep" and step.candidate == found.id:
            found = invert(found, step.reports)
    return found


def _of(brief: Brief, candidate: str) -> Brief:
    """Return the brief with the answers for one candidate only."""
    mine = tuple(answer for answer in brief.answers if answer.ask.candidate == candidate)
    return replace(brief, answers=mine)


GUIDANCE = shape(reasoning=TEXT, slow_update_content=TEXT)
NOTES = shape(reasoning=TEXT, meta_skill_content=TEXT)


def _unheard(failure: Failure, about: dict[str, Any]) -> Skip | Failure:
    """Return the failure for an outage; skip the turn for an unusable reply."""
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
        """Propose guidance from the results of two epochs on the same cases."""
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
        items = [*self.comparison.items(brief, rows)]
        items += [Item("guidance", "## The guidance so far", old)] if old else []
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
        """Return the most rollouts that one turn asks for."""
        return 2 * min(len(train), self.comparison.samples)


@dataclass(frozen=True, slots=True)
class MetaSkill:
    """Implements `kept.core.ports.Proposer`: notes for the teacher's next epoch."""

    teacher: Teacher
    comparison: Comparison
    name: str = META_SKILL
    serial: bool = False

    async def propose(self, brief: Brief, scope: Scope) -> ProposerReply:
        """Return notes on how the skill improves, as memory for later epochs."""
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
        """Return the most rollouts that one turn asks for."""
        return 2 * min(len(train), self.comparison.samples)


def _epoch(brief: Brief) -> Iterator[Item]:
    """Yield the steps of the epoch, the last first: the earliest are the first left out."""
    epoch = brief.turn.setting("epoch", int) or 0
    for step in reversed(closed_in(brief.history, epoch)):
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
        """Propose a few edits from all steps of the epoch."""
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
    """Return the summary of the last look back at an earlier epoch; empty if there is none."""
    epoch = brief.turn.setting("epoch", int) or 0
    for step in reversed(brief.history.of("meta_reflect")):
        mine = epoch_of(step.turn.phase)
        if mine and mine < epoch:
            return str(about_of(step).get("meta_summary", ""))
    return ""
