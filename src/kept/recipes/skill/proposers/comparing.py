"""Two skills on the same train cases: the one that the last epoch ended with, and the one now.

What it was then is found by taking back what was kept since. Both are rolled out by Asks, on a
sample that is the same whenever it is drawn.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, cast

from kept.core.artifact import Candidate
from kept.core.case import Case
from kept.core.edit import changed_paths, invert
from kept.core.proposal import Ask, Brief
from kept.core.rollout import Pair
from kept.core.schedules.epochs import epoch_of
from kept.proposers.proposers_fitting import Item
from kept.recipes.skill.document import SKILL
from kept.recipes.skill.proposers.analyst import Sight, fail_reason, rows_of, skill_items
from kept.recipes.skill.proposers.teacher import words

Change = Literal["improved", "regressed", "persistent_fail", "stable_success"]


class Compared(NamedTuple):
    """One case with both skills."""

    case: Case
    change: Change
    before: float
    after: float
    why: str
    """Why the present skill does not solve it; empty where it does."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """How two epochs are compared."""

    sight: Sight
    samples: int = 20
    run_seed: int = 0

    def asks(self, brief: Brief) -> Ask | None:
        """The next rollouts that are needed; None when all are there."""
        pairs = self.pairs(brief)
        wanted = dict.fromkeys((past_skill(brief).id, brief.incumbent.id))
        asked = {answer.ask.candidate for answer in brief.answers}
        return next((Ask(id_, pairs, "feedback") for id_ in wanted if id_ not in asked), None)

    def pairs(self, brief: Brief) -> tuple[Pair, ...]:
        """A sample of the train cases, in the draw of this epoch: the same for all who compare."""
        epoch = cast("int", brief.turn.settings["epoch"])
        chance = random.Random(f"{self.run_seed}/{epoch}")
        drawn = chance.sample(brief.train, min(self.samples, len(brief.train)))
        return tuple(Pair(case.id, epoch - 1) for case in drawn)

    def compared(self, brief: Brief) -> list[Compared]:
        """What both came to, where both have an answer."""
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
        """Both skills, and what they came to, the most telling first."""
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
    """The skill now with all its files, and of the one before what was another."""
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
    """What became of a case between two skills."""
    if failed_before:
        return "persistent_fail" if failed_now else "improved"
    return "regressed" if failed_now else "stable_success"


def plain(rows: Sequence[Compared]) -> list[dict[str, Any]]:
    """The comparison as it is written down."""
    return [
        {"id": row.case.id, "change": row.change, "before": row.before, "after": row.after}
        for row in rows
    ]


def past_skill(brief: Brief) -> Candidate:
    """The incumbent that the last epoch ended with."""
    epoch = cast("int", brief.turn.settings["epoch"])
    found = brief.incumbent
    for step in reversed(brief.closed):
        mine = epoch_of(step.turn.phase)
        if mine and mine < epoch:
            break
        if step.verdict.outcome == "keep" and step.candidate == found.id:
            found = invert(found, step.reports)
    return found


def _of(brief: Brief, candidate: str) -> Brief:
    """The brief with what is known of one candidate alone."""
    mine = tuple(answer for answer in brief.answers if answer.ask.candidate == candidate)
    return replace(brief, answers=mine)
