"""Real runs, cut anywhere: every prefix of a journal folds to a valid state."""

import asyncio
from dataclasses import dataclass, replace
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kept.core.budget import Budget
from kept.core.event import Proposed, RunStarted, StepClosed, StepOpened
from kept.core.ports import Gate
from kept.core.proposal import Note, Proposal
from kept.core.rollout import Job
from kept.core.state import State, advance, fold
from kept.gates.seed_rules import Follow, Selection, Strict
from kept.gates.sigma import Sigma
from kept.store import codec
from kept.store.reader import fold_run
from kept.testing import (
    Faults,
    MemoryJournal,
    Pool,
    RecordingSink,
    ScriptedEvaluator,
    ScriptedModel,
    ScriptedProposer,
    sit,
    small_plan,
)

GATES: tuple[Gate, ...] = (Strict(), Selection(), Follow(), Sigma(repeats=2))


@dataclass(frozen=True)
class World:
    """What fixes a run of twelve steps."""

    seed: int
    width: int
    workers: int
    gate: Gate
    noise: float | Literal["pass/fail"]
    feedback: int
    trouble: float


worlds = st.builds(
    World,
    seed=st.integers(0, 10**6),
    width=st.integers(1, 6),
    workers=st.integers(1, 9),
    gate=st.sampled_from(GATES),
    noise=st.sampled_from((0.0, "pass/fail")),
    feedback=st.integers(0, 1),
    trouble=st.sampled_from((0.0, 0.05)),
)


Ran = tuple[MemoryJournal, RecordingSink, State, int]
"""The journal of a run, what a sink saw of it, its end, and how often the evaluator was called."""


def run(world: World) -> Ran:
    """The run, and how many tries it took."""
    pool = Pool()

    def seconds(job: Job) -> float:
        return 1 + evaluator._draw(job, "seconds")

    evaluator = ScriptedEvaluator(
        quality=pool.quality,
        noise=world.noise,
        seconds=seconds,
        faults=Faults(outages=world.trouble, tries=2, crashes=world.trouble),
        random_seed=world.seed,
    )
    proposers = (
        ScriptedProposer(lines=pool.lines, feedback=world.feedback),
        ScriptedProposer(
            lines=pool.lines[::2], name="serial", serial=True, model=ScriptedModel(lambda r: "why")
        ),
    )
    plan = replace(
        small_plan(evaluator, *proposers),
        width=world.width,
        workers=world.workers,
        gate=world.gate,
        random_seed=world.seed,
        budget=Budget(max_iterations=12),
    )
    journal, sink = MemoryJournal(), RecordingSink()
    state = asyncio.run(sit(plan, journal, evaluator.clock, [sink]))
    return journal, sink, state, len(evaluator.log)


def check_valid(state: State, width: int) -> None:
    """What holds of the state of a run at any moment."""
    steps = [step.step for step in state.open]
    assert len(steps) <= width
    assert steps == list(range(state.next_step - len(steps), state.next_step))
    assert [step.step for step in state.history] == list(range(state.next_step - len(steps)))
    kept = {s.candidate for s in state.history if s.verdict.outcome == "keep"}
    assert state.incumbent in {state.seed, *kept}
    assert state.best in {state.seed, *kept}
    assert state.best == state.seed or state.best_step is not None
    assert state.keeps == sum(s.verdict.outcome == "keep" for s in state.history)
    assert state.crashes == sum(s.verdict.outcome == "crash" for s in state.history)
    assert all(step.incumbent == state.incumbent for step in state.open)
    settled = [s for s in state.history if s.verdict.code not in ("indecisive", "stale")]
    assert set(state.judged) == {s.candidate for s in settled if s.candidate}
    assert set(state.evaluations) <= {state.seed, state.incumbent, state.best}
    assert sum(state.turns.values()) == state.next_step
    assert all(isinstance(note, Note) for note in state.memory)


def check_every_prefix_folds(ran: Ran, width: int) -> None:
    journal, sink, end, _ = ran
    state = State()
    for number, event in enumerate(journal.events, 1):
        state = advance(state, event)
        check_valid(state, width)
        assert state == sink.states[number - 1], "the live state is not the fold of the journal"
        assert set(fold_run(journal.events[:number]).opened) == {s.step for s in state.open}
    assert state == end
    assert fold(journal.events) == end


def check_order(ran: Ran) -> None:
    journal, _, end, _ = ran
    events = journal.events
    assert isinstance(events[0], RunStarted)
    opened = [event.step for event in events if isinstance(event, StepOpened)]
    closed = [event.step for event in events if isinstance(event, StepClosed)]
    assert opened == list(range(len(opened)))
    assert closed == list(range(len(closed)))
    proposed = {event.step for event in events if isinstance(event, Proposed)}
    assert proposed >= set(closed)
    for step in end.history:
        if step.verdict.outcome == "keep":
            assert isinstance(step.proposal, Proposal)
            assert step.candidate is not None


def check_lines(ran: Ran) -> None:
    journal, *_ = ran
    for event in journal.events:
        assert codec.decode_event(codec.encode(event)) == event
    for step, job, outcome in journal.rollouts:
        line = codec.decode_line(codec.encode_rollouts([(step, job, outcome)]))
        assert isinstance(line, codec.RolloutLine)
        assert (line.step, *line.entry()) == (step, job, outcome)


def check_spend(ran: Ran) -> None:
    journal, _, end, tries = ran
    if not end.open:
        assert end.spend.rollouts == len(journal.rollouts)
        assert tries >= end.spend.rollouts + end.spend.retries
    jobs = [job for _, job, outcome in journal.rollouts if outcome.failure is None]
    assert len(jobs) == len(set(jobs)), "a pair that had its answer was rolled out again"


def check_run(world: World) -> None:
    ran = run(world)  # once for all checks: it takes a second
    check_every_prefix_folds(ran, world.width)
    check_order(ran)
    check_lines(ran)
    check_spend(ran)


@pytest.mark.slow
@settings(deadline=None, derandomize=True, max_examples=8)
@given(worlds)
def test_a_run_folds_closes_in_order_comes_back_from_its_lines_and_adds_up(world: World):
    check_run(world)


@pytest.mark.nightly
@settings(deadline=None, max_examples=100)
@given(worlds)
def test_any_run_of_many_folds_closes_in_order_and_adds_up(world: World):
    check_run(world)
