"""How the rollouts of a run begin."""

import asyncio
from dataclasses import dataclass, replace

import kept
from kept.core.case import Case, Cases
from kept.testing import MemoryJournal, ScriptedProposer, sit, small_plan

WORKERS = 64


@dataclass
class Connecting:
    """Makes a call, waits for a connection, sends it: as a client of HTTP does."""

    unsent: int = 0
    most: int = 0
    sent: int = 0

    async def run(
        self, job: kept.Job, candidate: kept.Candidate, case: kept.Case, scope: kept.Scope
    ) -> kept.Rollout:
        self.unsent += 1
        if self.sent + self.unsent <= WORKERS:
            # later ones follow replies that came together
            self.most = max(self.most, self.unsent)
        for _ in range(3):
            await asyncio.sleep(0)
        self.unsent -= 1
        self.sent += 1
        await asyncio.sleep(0.02)
        return kept.Rollout(metrics={"score": 0.5})

    async def close(self) -> None:
        pass


def test_the_first_calls_are_sent_while_the_last_are_yet_to_be_made():
    runner = Connecting()
    cases = Cases(holdout=tuple(Case(str(n), n) for n in range(WORKERS)))
    plan = small_plan(runner, ScriptedProposer(lines=("a line",)))
    budget = kept.Budget(max_iterations=1)
    plan = replace(plan, cases=cases, workers=WORKERS, budget=budget, tries_one=False)
    asyncio.run(sit(plan, MemoryJournal()))
    assert runner.sent >= WORKERS
    assert runner.most <= 0.6 * WORKERS, "so many were made before any of them was sent"
