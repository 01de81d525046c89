"""A proposer of demos: what predictors did on train cases that went well."""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from kept.adapters.dspy.program import DEMOS, written
from kept.adapters.records import records_in
from kept.core.case import Case
from kept.core.edit import Write
from kept.core.ports import Scope
from kept.core.proposal import Ask, Brief, Proposal, ProposerReply, Skip
from kept.core.rollout import Pair
from kept.core.score import Outcome


@dataclass(frozen=True, slots=True)
class Demos:
    """Implements `kept.core.ports.Proposer`."""

    most: int = 4
    """Demos in a predictor."""
    name: str = "demos"
    serial: bool = False

    async def propose(self, brief: Brief, scope: Scope) -> ProposerReply:
        """Some of what went well, for every predictor that takes demos."""
        draw = random.Random(brief.seed)
        if not brief.answers:
            drawn = draw.sample(brief.train, self.most_asked(brief.train))
            return Ask(brief.incumbent.id, tuple(Pair(c.id, 0) for c in drawn), "feedback")
        (answer,) = brief.answers
        good = [p for p, o in answer.outcomes.items() if _value(brief, o) > 0]
        if not good:
            return Skip("no case that was looked at went well")
        # the best first, and among equals any
        draw.shuffle(good)
        good.sort(key=lambda pair: -_value(brief, answer.outcomes[pair]))
        chosen = good[: draw.randint(1, self.most)]
        edits: list[Write] = []
        for path in sorted(p for p in brief.incumbent.texts if p.endswith(DEMOS)):
            found = [_demo(records_in(answer.traces.get(pair, ()), path)) for pair in chosen]
            demos = [demo for demo in found if demo is not None]
            if demos:
                edits.append(Write(path, written(demos)))
        if not edits:
            return Skip("nothing was recorded of the cases that went well")
        told = ", ".join(pair.case for pair in chosen)
        return Proposal(tuple(edits), f"demos of what went well on {told}")

    def most_asked(self, train: tuple[Case, ...]) -> int:
        """For each step, what it looks at first."""
        return min(2 * self.most, len(train))


def _value(brief: Brief, outcome: Outcome) -> float:
    return 0.0 if outcome.failure else outcome.metrics.get(brief.objective.metric, 0.0)


def _demo(rows: list[Mapping[str, Any]]) -> dict[str, Any] | None:
    return dict(cast("Mapping[str, Any]", rows[-1]["demo"])) if rows else None
