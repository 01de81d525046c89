"""Deep reflect: have a few rollouts done again with a question in them, and look at those too.

The teacher writes the question. It may name one rollout, and the step of it that the student should
go on from; the environment knows how. What comes of it is for analysts alone, and is never judged.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kept.core.artifact import Candidate
from kept.core.proposal import Ask, Brief
from kept.core.rollout import Failure, Pair
from kept.models.window import tokens_of
from kept.proposers.proposers_fitting import Item
from kept.recipes.skill.proposers.analyst import Row, Sight, analyst_items
from kept.recipes.skill.proposers.modes import COUNT, TEXT, shape
from kept.recipes.skill.proposers.teacher import Desk, Wanted, is_broken, words_of

PROBE = shape(reasoning=TEXT, probe_instruction=TEXT, probe_target_id=TEXT, probe_after_step=COUNT)


@dataclass(frozen=True, slots=True)
class Deep:
    """How deep it goes."""

    probe: Callable[..., Mapping[str, str]]
    """Makes the texts of a candidate that is asked; see `kept.evaluators.environments.opened`."""
    sight: Sight
    failures: int = 4
    successes: int = 2

    def most_asked(self, rows: int) -> int:
        """Rollouts that are done again at most, of so many."""
        return min(rows, self.failures + self.successes)

    def chosen(self, rows: Sequence[Row]) -> list[Row]:
        """A few that stand for the others: of as many kinds of tasks as there are."""
        failed = [row for row in rows if row.failed]
        solved = [row for row in rows if not row.failed]
        return [*self._varied(failed, self.failures), *self._varied(solved, self.successes)]

    def _varied(self, rows: Sequence[Row], most: int) -> list[Row]:
        by_kind: dict[str, list[Row]] = {}
        for row in rows:
            by_kind.setdefault(self.sight.about(row.case).type, []).append(row)
        found: list[Row] = []
        while len(found) < min(most, len(rows)):
            found += [kind.pop(0) for kind in by_kind.values() if kind]
        return found[:most]

    async def ask(
        self, desk: Desk, rows: Sequence[Row], pairs: Sequence[Pair], front: Sequence[Item]
    ) -> tuple[Ask, dict[str, Any]] | dict[str, Any] | Failure:
        """The rollouts that the teacher wants to see again; or in words why there are none."""
        mine = self.chosen(rows)
        if not mine:
            return {"error": "no rollout of a kind that is looked at again"}
        system = desk.prompt("deep_probe")
        wanted = Wanted(PROBE)
        room = desk.teacher.room(wanted)
        room = None if room is None else room - tokens_of(system) - tokens_of(json.dumps(PROBE))
        pages = analyst_items(mine, self.sight, front, room)
        said = await desk.ask("probe", system, pages.items, wanted)
        if isinstance(said, Failure):
            if is_broken(said):
                return said
            await desk.do_without("probe", said)
            return {"error": words_of(said)}
        told = dict(said.data)
        if not told["probe_instruction"].strip():
            return {**told, "error": "the teacher asks nothing"}
        named = [row for row in mine if row.case.id == told["probe_target_id"]]
        ids = {row.case.id for row in named or mine}
        again = tuple(pair for pair in pairs if pair.case in ids)
        made = self._candidate(desk.brief, told, named)
        return Ask(made.id, again, "probe", made), told

    def _candidate(self, brief: Brief, told: Mapping[str, Any], named: Sequence[Row]) -> Candidate:
        texts, instruction = brief.incumbent.texts, told["probe_instruction"]
        step = told["probe_after_step"]
        if not named or not step:
            return Candidate(dict(self.probe(texts, instruction)))
        return Candidate(dict(self.probe(texts, instruction, named[0].trace, step)))
