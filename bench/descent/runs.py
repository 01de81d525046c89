"""One run of the plan that an agent.yaml compiles to, in the world, with a journal in memory.

What is replaced stands at the ports: the agent by odds, the critic and the applier by a pool of
edits. Proposers, schedule, loop and gates are the real ones.
"""

import asyncio
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from bench.descent.world import (
    AFTER,
    TOLERANCE,
    apply,
    criticise,
    is_improved,
    odds,
    true_loss,
    write_agent,
)
from kept.core.artifact import Candidate
from kept.core.case import Case
from kept.core.plan import Plan
from kept.core.ports import Proposer, Scope
from kept.core.proposal import Brief, History, ProposerReply, Turn
from kept.core.schedules.coordinate import cycle_of, phase_of
from kept.evaluators.runners.function import RecordedScorer
from kept.evaluators.scorers.transforms import WeightedLoss
from kept.proposers.critique import Critique
from kept.proposers.numeric.search import Numeric
from kept.recipes.agent_config.tune import compile_coordinate
from kept.spec.locate.tree import read_value
from kept.testing import MemoryJournal, ScriptedEvaluator, ScriptedModel, sit

METRIC = "equality"
WHOLE = "c1/numeric"
"""The phase that a long-lived study believes to be in."""


class Arm(NamedTuple):
    """How a run decides, and what its numeric search remembers."""

    name: str
    gate: str
    long_lived: bool = False


ARMS = (
    Arm("race", "race"),
    Arm("race, long-lived study", "race", long_lived=True),
    Arm("sigma", "sigma"),
    Arm("sigma, long-lived study", "sigma", long_lived=True),
)


class Ran(NamedTuple):
    """What a run came to."""

    seed: int
    improved: bool
    """Whether it ends with the improved prompt."""
    temperature: float
    loss: float
    """The true one, of what it ends with."""
    trials: int
    keeps: int
    cycles: int
    rollouts: int
    why: str
    """Why it ended."""

    @property
    def near(self) -> bool:
        """Whether the number is where the improved prompt has its best."""
        return abs(self.temperature - AFTER.best) <= TOLERANCE

    @property
    def found(self) -> bool:
        return self.improved and self.near


@dataclass(frozen=True, slots=True)
class LongLived:
    """Implements `kept.core.ports.Proposer`: one study for all numeric phases, as if they were one.

    It warms up once, and goes on believing losses that were measured beside another prompt.
    """

    inner: Numeric
    serial: bool = True

    @property
    def name(self) -> str:
        return self.inner.name

    async def propose(self, brief: Brief, scope: Scope) -> ProposerReply:
        closed = History(replace(step, turn=_as_one(step.turn)) for step in brief.history)
        return await self.inner.propose(
            replace(brief, turn=_as_one(brief.turn), history=closed), scope
        )


def _as_one(turn: Turn) -> Turn:
    return replace(turn, phase=WHOLE) if phase_of(turn.phase) == "numeric" else turn


def plan_of(folder: Path, arm: Arm, seed: int) -> Plan:
    """The plan of the recipe, with what it would ask of a model replaced."""
    plan = compile_coordinate(write_agent(folder, arm.gate, seed)).plan

    known: dict[str, tuple[str, float]] = {}

    def quality(candidate: Candidate, case: Case) -> float:
        if candidate.id not in known:
            known[candidate.id] = held(candidate)
        return odds(*known[candidate.id], case.id, seed)

    runner = ScriptedEvaluator(
        quality=quality, noise="pass/fail", metric=METRIC, traces=True, random_seed=seed
    )
    return replace(
        plan,
        runner=runner,
        scorer=WeightedLoss(RecordedScorer(), {METRIC: 1.0}),
        proposers=tuple(_replaced(plan.proposers, arm)),
        views=(),
    )


def _replaced(proposers: tuple[Proposer, ...], arm: Arm) -> Iterator[Proposer]:
    for one in proposers:
        if isinstance(one, Critique):
            critic = replace(one.critic, model=ScriptedModel(criticise))
            applier = replace(one.applier, model=ScriptedModel(apply))
            yield replace(one, critic=critic, applier=applier)
        elif isinstance(one, Numeric) and arm.long_lived:
            yield LongLived(one)
        else:
            yield one


def held(candidate: Candidate) -> tuple[str, float]:
    """The prompt and the number of a candidate."""
    text = candidate["agent.yaml"]
    prompt, number = (
        read_value("agent.yaml", text, key) for key in ("instructions.inline", "model.temperature")
    )
    return str(prompt), float(str(number))


def run_one(arm: Arm, seed: int) -> Ran:
    """One run, from its agent.yaml to what it would give to its user."""
    with tempfile.TemporaryDirectory(prefix="kept-descent-") as folder:
        plan = plan_of(Path(folder), arm, seed)
        journal = MemoryJournal()
        state = asyncio.run(sit(plan, journal))
    prompt, temperature = held(journal.load(state.best))
    trials = [step for step in state.history if cycle_of(step.turn.phase)]
    return Ran(
        seed=seed,
        improved=is_improved(prompt),
        temperature=temperature,
        loss=true_loss(prompt, temperature),
        trials=len(trials),
        keeps=sum(step.verdict.outcome == "keep" for step in trials),
        cycles=max(cycle_of(step.turn.phase) for step in trials),
        rollouts=len(plan.runner.log) if isinstance(plan.runner, ScriptedEvaluator) else 0,
        why=state.stopped.message if state.stopped else "",
    )
