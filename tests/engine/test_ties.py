"""Accuracy first, then cost: a whole run that keeps what is as good and cheaper, and is right."""

import asyncio
import re
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

import kept
from kept.core.artifact import Artifact, Candidate, Rules
from kept.core.budget import Budget
from kept.core.case import Case, Cases
from kept.core.edit import Append
from kept.core.objective import Constraint, Objective, TieBreaker
from kept.core.plan import Plan
from kept.core.ports import Gate, Scope
from kept.core.proposal import Brief, Proposal, ProposerReply
from kept.core.rollout import Failure, Job, Rollout, Usage
from kept.core.schedules.round_robin import RoundRobin
from kept.core.state import State
from kept.evaluators.runners.function import RecordedScorer
from kept.gates.race import Race
from kept.gates.seed_rules import Strict
from kept.recipes.race_choice import with_race
from kept.results.summary import summary
from kept.run import start
from kept.store.home import Home
from kept.testing.fakes import AcceptAll, RejectAll
from kept.ui.report.markdown import caveats
from tests.engine.worlds import draw

WORDS = ("short", "wrong", "idle", "long", "idle", "short", "wrong", "idle")
"""Cheaper, worse and cheaper, of no effect, dearer."""


SCORE = Objective("score", "maximize", (0.0, 1.0))


@dataclass(frozen=True)
class Told:
    """Reports what each rollout cost; nobody emits it as a measure."""

    async def run(
        self, job: Job, candidate: Candidate, case: Case, scope: Scope
    ) -> Rollout | Failure:
        text = candidate.texts["prompt"]
        chance = (0.97, 0.05)[hash_of(case) % 2] - 0.25 * text.count("wrong")
        price = 0.01 * (1 + hash_of(case) % 5) * 0.6 ** (text.count("short") + text.count("wrong"))
        price *= 1.5 ** text.count("long") * (0.95 + 0.1 * draw("price", *job))
        right = float(draw("right", *job) < chance)
        return Rollout(metrics={"score": right}, usage=Usage(calls=1, usd=price))

    async def close(self) -> None:
        pass


def hash_of(case: Case) -> int:
    return int(str(case.data))


@dataclass(frozen=True)
class Pool:
    """One line a turn, of good, useless and harmful ones."""

    name: str = "pool"
    serial: bool = False

    async def propose(self, brief: Brief, scope: Scope) -> ProposerReply:
        word = WORDS[brief.turn.number % len(WORDS)]
        return Proposal((Append("prompt", f"{word} {brief.step}\n"),))


def plan(gate: Gate, objective: Objective) -> Plan:
    cases = Cases(
        train=tuple(Case(f"t{n}", n) for n in range(20)),
        holdout=tuple(Case(f"h{n}", n) for n in range(60)),
    )
    made = Plan(
        recipe="test",
        seed=Candidate({"prompt": "seed\n"}),
        rules=Rules({"prompt": Artifact("prompt")}),
        cases=cases,
        runner=Told(),
        scorer=RecordedScorer(),
        objective=objective,
        proposers=(Pool(),),
        schedule=RoundRobin(("pool",)),
        gate=gate,
        budget=Budget(max_iterations=len(WORDS)),
        workers=4,
    )
    return with_race(made)


def run(folder: Path, gate: Gate, objective: Objective) -> State:
    return asyncio.run(start(plan(gate, objective), Home(folder)))[1]


def leading(folder: Path, state: State) -> str:
    (run_folder,) = (folder / "runs").iterdir()
    return kept.read_run(run_folder).candidate(state.incumbent).texts["prompt"]


@pytest.mark.slow
@pytest.mark.parametrize("gate", [Race(), AcceptAll(), RejectAll()], ids=lambda gate: gate.name)
def test_a_run_keeps_what_is_as_good_and_costs_less(tmp_path: Path, gate: Gate):
    state = run(tmp_path, gate, replace(SCORE, tie_breakers=(TieBreaker("usd"),)))
    text = leading(tmp_path, state)
    real = "short" in text and not any(word in text for word in ("wrong", "long", "idle"))
    assert real == (gate.name == "race")


def test_a_constraint_may_speak_of_what_kept_measures_itself(tmp_path: Path):
    limit = replace(SCORE, constraints=(Constraint("usd", "<=", 0.02),))
    state = run(tmp_path, Strict(), limit)
    broken = [step.verdict for step in state.history if step.verdict.code == "constraint"]
    assert broken
    for verdict in broken:
        assert re.search(r"usd <= 0.02: it is 0.0[2-4]\d* \(0.0\d* … 0.0\d*\)", verdict.reason)


def test_a_report_tells_what_breaks_ties_and_a_name_that_nothing_emits(tmp_path: Path):
    named = replace(SCORE, tie_breakers=(TieBreaker("usd"), TieBreaker("token")))
    run(tmp_path, AcceptAll(), named)
    (folder,) = (tmp_path / "runs").iterdir()
    told = summary(kept.read_run(folder))
    usd, token = told.ties
    assert usd.was is not None
    assert usd.now is not None
    assert usd.now < usd.was
    assert (token.was, token.now) == (None, None)
    assert any("No rollout emitted `token`" in words for words in caveats(told))
    assert not any("speaks against" in words for words in caveats(told))
    against = replace(told, claim="worse", claim_high=-0.01)
    assert any("speaks against the best" in words for words in caveats(against))
