"""Near misses that are built on, from the draw of a parent to what is kept of it."""

import asyncio
import random
from dataclasses import dataclass, replace
from statistics import mean

import pytest

from kept.core.artifact import Candidate
from kept.core.budget import Budget
from kept.core.case import Case, Cases
from kept.core.edit import Append
from kept.core.plan import Plan
from kept.core.ports import Scope
from kept.core.proposal import Brief, Proposal, ProposerReply
from kept.core.schedules.round_robin import WAITED, Pooling
from kept.core.state import State
from kept.gates.race import PRESETS
from kept.recipes.race_choice import with_race
from kept.testing.journal import MemoryJournal
from kept.testing.run import ScriptedEvaluator, sit, small_plan

FIRST, SECOND = "name the units", "convert them"
"""The first alone helps a little; the second needs it, and alone does harm."""


def quality(candidate: Candidate, case: Case) -> float:
    lines = set(candidate.texts["text"].splitlines())
    if {FIRST, SECOND} <= lines:
        return 0.8
    return 0.3 + 0.08 * (FIRST in lines) - 0.15 * (SECOND in lines)


@dataclass(frozen=True)
class Writer:
    """Adds one line, drawn from those that the text it is given has not got."""

    builds: bool = True
    name: str = "writer"
    serial: bool = False

    async def propose(self, brief: Brief, scope: Scope) -> ProposerReply:
        draw = random.Random(brief.seed)
        there = brief.incumbent.texts["text"].splitlines()
        dull = [f"be excellent {draw.random()}" for _ in range(2)]
        line = draw.choice([one for one in (FIRST, SECOND, *dull) if one not in there])
        return Proposal((Append("text", f"{line}\n"),), why=line)


def make(seed: int, *, builds: bool, width: int = 1, rollouts: int = 2000, waited: int = 0) -> Plan:
    runner = ScriptedEvaluator(quality=quality, noise="pass/fail", random_seed=seed)
    plan = replace(
        small_plan(runner, Writer(builds)),
        cases=Cases(
            tuple(Case(f"t{n}", n) for n in range(10)), tuple(Case(f"h{n}", n) for n in range(12))
        ),
        gate=PRESETS["balanced"],
        budget=Budget(max_rollouts=rollouts),
        random_seed=seed,
        width=width,
    )
    racing = with_race(plan)
    assert isinstance(racing.schedule, Pooling)
    return replace(racing, schedule=replace(racing.schedule, waited=waited))


def run(plan: Plan) -> tuple[State, MemoryJournal]:
    journal = MemoryJournal()
    return asyncio.run(sit(plan, journal)), journal


@pytest.mark.slow
def test_what_can_only_be_reached_through_a_near_miss_is_reached_by_building_on_it():
    gains: dict[bool, list[float]] = {True: [], False: []}
    for seed in range(16):
        for builds, found in gains.items():
            plan = make(seed, builds=builds, rollouts=800, waited=WAITED)
            state, journal = run(plan)
            assert builds or all(step.turn.parent is None for step in state.history)
            case = plan.cases.holdout[0]
            found.append(quality(journal.load(state.incumbent), case) - quality(plan.seed, case))
    assert mean(gains[True]) > mean(gains[False]) + 0.05, gains


def test_a_child_is_judged_against_the_incumbent_with_all_of_its_edits():
    state, journal = run(make(0, builds=True, rollouts=800))
    children = [step for step in state.history if step.proposal and step.proposal.builds_on]
    assert children
    for step in children:
        assert step.proposal is not None
        (parent,) = step.proposal.builds_on
        assert (step.turn.parent, step.incumbent) == (parent, state.history[parent].incumbent)
        below = state.history[parent]
        assert below.proposal is not None
        assert step.proposal.edits[: step.proposal.inherited] == below.proposal.edits
        assert below.candidate is not None
        if step.verdict.code != "duplicate":
            assert step.candidate is not None
            added = step.proposal.edits[step.proposal.inherited :]
            text = journal.load(below.candidate).texts["text"]
            grown = text + "".join(edit.text for edit in added if isinstance(edit, Append))
            assert journal.load(step.candidate).texts["text"] == grown
    drawn = mean(
        step.turn.parent is not None for step in state.history if step.turn.phase == "main"
    )
    assert drawn <= 0.35, "the incumbent is edited three times in four, or more"


@pytest.mark.slow
def test_of_a_child_whose_parent_was_kept_meanwhile_its_own_part_is_tried():
    for seed in range(20):
        state, journal = run(make(seed, builds=True, width=4, rollouts=1200))
        for step in state.history:
            made = step.proposal
            if made is None or not made.builds_on or len(step.reports) in (0, len(made.edits)):
                continue
            assert [report.edit for report in step.reports] == [*made.edits[made.inherited :]]
            lines = journal.load(step.incumbent).texts["text"].splitlines()
            assert all(
                edit.text.strip() in lines
                for edit in made.edits[: made.inherited]
                if isinstance(edit, Append)
            )
            if step.candidate is not None and step.verdict.code != "duplicate":
                now = journal.load(step.candidate).texts["text"].splitlines()
                assert len(now) == len(set(now)), "nothing stands there twice"
            return
    pytest.fail("no parent was kept while a child was open")
