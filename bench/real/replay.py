"""Runs of the real loop, with the bank in the place of the model.

A rollout is one of the recorded draws of its prompt and case, drawn at random by run, label, case,
purpose and repeat: what the model would say, as far as twelve draws tell. So the bank's own means
are the truth, and two labels of one prompt are equally good whatever they draw. Were each label
given some of the rows for good, it would be as good as its own few rows, and a race that repeats
them would be right to prefer the luckier one.
"""

import asyncio
import hashlib
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from bench.real.bank import Bank
from kept.core.artifact import Candidate
from kept.core.budget import Budget
from kept.core.case import Case, split_cases
from kept.core.event import StepClosed
from kept.core.objective import Objective
from kept.core.plan import Plan
from kept.core.ports import Gate, Scope
from kept.core.rollout import Failure, Job, Rollout
from kept.gates.final import Final
from kept.gates.race import PRESETS
from kept.gates.seed_rules import Selection
from kept.gates.sigma import Sigma
from kept.proposers.variants import Variant, Variants
from kept.recipes.race_choice import with_race
from kept.testing import MemoryJournal, sit, small_plan

RATIO = (3, 5, 2)
SEED_LABEL = "the seed"
"""Not the name of any prompt: the bank has one that is called `seed`, for the demo begins there."""

GATES: Mapping[str, Gate] = {
    "race": PRESETS["balanced"],
    # in a task: `race: {final: {most: 0}}`
    "race, no final": replace(PRESETS["balanced"], final=Final(most=0)),
    "sigma": Sigma(repeats=3, accept_sigma=1.0),
    "selection": Selection(),
}


Fate = Literal["dropped at once", "near miss", "not proven", "kept"]


@dataclass(frozen=True, slots=True)
class World:
    """Which prompt of the bank stands behind each label; the first label is the seed."""

    bank: Bank
    prompt_of: Mapping[str, str]

    def truth(self, label: str) -> float:
        """The share of right answers behind a label."""
        return self.bank.mean(self.prompt_of[label])


@dataclass(frozen=True, slots=True)
class Replayed:
    """What one run came to."""

    keeps: int
    best: str
    """The label that stands in `best/`."""
    rollouts: int
    claimed: float | None
    """The gain that the sealed test showed; None where nothing was promoted."""
    fates: Mapping[str, Fate]
    """What became of each label that was judged."""


class BankRunner:
    """Implements `kept.core.ports.Runner`."""

    def __init__(self, world: World, number: int, path: str = "text") -> None:
        self._world = world
        self._number = number
        self._path = path
        """Of the artifact that holds the label."""

    async def run(
        self, job: Job, candidate: Candidate, case: Case, scope: Scope
    ) -> Rollout | Failure:
        """One of the recorded draws."""
        label = candidate.texts[self._path].strip()
        rows = self._world.bank.right[self._world.prompt_of[label], case.id]
        name = f"{self._number}\0{label}\0{case.id}\0{job.purpose}\0{job.repeat}"
        draw = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big")
        return Rollout(metrics={"score": float(rows[draw % len(rows)])})

    async def close(self) -> None:
        """Nothing was opened."""


def null_world(bank: Bank, prompt: str, labels: int) -> World:
    """One prompt under several names."""
    names = [SEED_LABEL, *(f"copy {n}" for n in range(labels))]
    return World(bank, dict.fromkeys(names, prompt))


def real_world(bank: Bank, seed: str) -> World:
    """The prompts as they are, from one of them."""
    others = [name for name in bank.prompts if name != seed]
    return World(bank, {SEED_LABEL: seed, **{name: name for name in others}})


def replay(world: World, gate: Gate, number: int, budget: int) -> Replayed:
    """One run: every label is proposed once, in an order of this run's own."""
    labels = [label for label in world.prompt_of if label != SEED_LABEL]
    random.Random(number).shuffle(labels)
    proposer = Variants(tuple(Variant({"text": label}, label) for label in labels))
    cases = [Case(name) for name in world.bank.cases]
    plan = replace(
        small_plan(BankRunner(world, number), proposer),
        seed=Candidate({"text": SEED_LABEL}),
        cases=split_cases(cases, RATIO, number),
        objective=Objective("score", "maximize", (0.0, 1.0)),
        gate=gate,
        budget=Budget(max_rollouts=budget),
        random_seed=number,
    )
    return come_to(with_race(plan), "text")


def come_to(plan: Plan, path: str) -> Replayed:
    """Run a plan whose labels are the texts at a path."""
    journal = MemoryJournal()
    state = asyncio.run(sit(plan, journal))
    told = [event.verdict for event in journal.events if isinstance(event, StepClosed)]
    return Replayed(
        keeps=sum(verdict.outcome == "keep" for verdict in told),
        best=journal.load(state.best).texts[path].strip(),
        rollouts=state.spend.rollouts,
        claimed=next((one.numbers["gain"] for one in told if one.code == "claim"), None),
        fates=fates(journal, path),
    )


def fates(journal: MemoryJournal, path: str) -> dict[str, Fate]:
    """What became of each label, by the last verdict on it."""
    found: dict[str, Fate] = {}
    for event in journal.events:
        if not isinstance(event, StepClosed) or event.candidate is None:
            continue
        label = journal.load(event.candidate).texts[path].strip()
        if event.verdict.outcome == "keep":
            found[label] = "kept"
        elif event.verdict.code == "near miss":
            found[label] = "near miss"
        elif event.verdict.outcome == "discard":
            found[label] = "not proven" if label in found else "dropped at once"
    return found
