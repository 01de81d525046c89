"""Reflection on a few cases, chosen where a better result is possible.

The incumbent runs on many train cases once, and every step looks at a few of them. First come
cases that the incumbent fails and a promising step does not: there a better text exists. Other
failures follow, then some good results, so that the model sees what must not be lost.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import inf

from kept.core.proposal import Answer, Ask, Brief, strongest
from kept.core.rollout import Pair
from kept.proposers.llm import ModelProposer

WELL = 4
"""One of this many shown cases is a good result."""


@dataclass(frozen=True, slots=True)
class ReflectProposer(ModelProposer):
    """Implements `kept.core.ports.Proposer`."""

    batch: int = 6
    """Number of cases shown to the model, out of all that were run."""

    def _wanted(self, brief: Brief) -> Ask | None:
        """Request the same cases for the same incumbent, so that they are paid for once."""
        size = self.most_asked(brief.train)
        if brief.parent is not None:
            # a promising step may never be built on again: request no more than is shown
            size = min(size, self.batch)
        if not size:
            return None
        drawn = random.Random(brief.incumbent.id).sample(brief.train, size)
        return Ask(brief.incumbent.id, tuple(Pair(case.id, 0) for case in drawn), "feedback")

    def _shown(self, brief: Brief) -> Brief:
        return minibatch(brief, self.batch)


def minibatch(brief: Brief, size: int) -> Brief:
    """Copy of the brief with at most `size` cases, a new selection in each step."""
    told = {
        pair: outcome
        for answer in brief.answers
        for pair, outcome in answer.outcomes.items()
        if outcome.failure is None or outcome.failure.blame == "candidate"
    }
    losses = {
        pair: inf if outcome.failure is not None else brief.objective.loss(outcome.metrics)
        for pair, outcome in told.items()
    }
    # failures by the candidate rank as the worst loss; outages are ignored
    if not losses:
        return brief
    chosen = {*_chosen(brief, losses, size)}
    answers: list[Answer] = []
    for answer in brief.answers:
        outcomes = {pair: outcome for pair, outcome in answer.outcomes.items() if pair in chosen}
        traces = {pair: trace for pair, trace in answer.traces.items() if pair in chosen}
        answers.append(replace(answer, outcomes=outcomes, traces=traces))
    return replace(brief, answers=tuple(answers))


def _chosen(brief: Brief, losses: dict[Pair, float], size: int) -> Sequence[Pair]:
    pooled = {case: dict(miss.losses)[case] for case, miss in strongest(brief.pool).items()}
    best = min(losses.values())
    well = [pair for pair, loss in losses.items() if loss == best]
    failed = [pair for pair, loss in losses.items() if loss > best]
    if not failed:
        well, failed = [], well
    won = [pair for pair in failed if pooled.get(pair.case, inf) < losses[pair]]
    rest = [pair for pair in failed if pair not in won]
    draw = random.Random(brief.seed)
    for row in (well, won, rest):
        # sort first: the order must not depend on which answer came first
        row.sort()
        draw.shuffle(row)
    shown = min(len(well), size // WELL)
    failures = [*chain(won, rest)][: size - shown]
    return [*failures, *well[: size - len(failures)]][:size]
