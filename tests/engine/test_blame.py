"""A scorer that fails on one side of a comparison alone: whose failure that is."""

import asyncio
from dataclasses import replace

import pytest

from kept.core.artifact import Candidate
from kept.core.budget import Budget
from kept.core.case import Case
from kept.core.ports import Gate, Scope
from kept.core.rollout import Failure, FailureKind, Job, Rollout
from kept.core.score import Score
from kept.core.state import State
from kept.gates.race import Race
from kept.gates.seed_rules import Strict
from kept.recipes.race_choice import with_race
from kept.testing import MemoryJournal, ScriptedProposer, sit, small_cases, small_plan

HARD = "holdout-3"
"""The case that the challenger fails."""


class Echo:
    async def run(
        self, job: Job, candidate: Candidate, case: Case, scope: Scope
    ) -> Rollout | Failure:
        return Rollout(candidate.texts["text"])

    async def close(self) -> None:
        pass


class Breakable:
    """Scores a challenger a little better, but for the case on which it breaks the scorer."""

    def __init__(self, kind: FailureKind, *, both: bool = False) -> None:
        self.kind: FailureKind = kind
        self.both = both

    async def score(
        self, job: Job, rollout: Rollout, candidate: Candidate, case: Case, scope: Scope
    ) -> Score | Failure:
        new = "better" in rollout.output
        if case.id == HARD and (new or self.both):
            return Failure(self.kind, "infrastructure", "it cannot be read", tried=True)
        return Score({"score": 0.54 if new else 0.5})

    async def close(self) -> None:
        pass


def end(scorer: Breakable, gate: Gate) -> State:
    plan = small_plan(Echo(), ScriptedProposer(lines=("better",)))
    cases, budget = small_cases(4, 12), Budget(max_iterations=1)
    plan = replace(plan, cases=cases, scorer=scorer, gate=gate, budget=budget)
    return asyncio.run(sit(with_race(plan), MemoryJournal()))


@pytest.mark.parametrize("gate", [Strict(), Race()])
@pytest.mark.parametrize("kind", ["harness", "parse", "refused", "context"])
def test_what_breaks_a_scorer_is_not_spared_the_case(kind: FailureKind, gate: Gate):
    state = end(Breakable(kind), gate)
    assert state.best == state.seed, "11 cases of +0.04, and one at the worst value"
    decided = [step for step in state.history if step.candidate not in (None, state.seed)]
    assert {step.verdict.outcome for step in decided} == {"discard"}


@pytest.mark.parametrize("kind", ["harness", "parse"])
def test_a_scorer_that_fails_on_both_sides_is_nobodys_fault(kind: FailureKind):
    state = end(Breakable(kind, both=True), Strict())
    assert state.keeps == 1


@pytest.mark.parametrize("kind", ["timeout", "network", "server", "rate_limit", "limit"])
def test_an_outage_of_a_scorer_is_nobodys_fault(kind: FailureKind):
    state = end(Breakable(kind), Strict())
    assert state.keeps == 1
