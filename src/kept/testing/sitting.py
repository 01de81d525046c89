"""Runs without files: a small plan, and one sitting of it on a journal in memory."""

from collections.abc import Sequence

from kept.core.artifact import Artifact, Candidate, Rules
from kept.core.budget import Budget
from kept.core.case import Case, Cases
from kept.core.event import RunResumed, RunStarted
from kept.core.objective import Objective
from kept.core.plan import Plan
from kept.core.ports import Clock, Proposer, Runner, Sink
from kept.core.schedules.schedule import RoundRobin
from kept.core.state import State, advance
from kept.engine.loop import Loop
from kept.evaluators.scorers.recorded import RecordedScorer
from kept.gates.strict import Strict
from kept.store.reader import fold_run
from kept.testing.clock import FakeClock
from kept.testing.journal import MemoryJournal

SEED = Candidate({"text": "a seed\n"})


def small_cases(train: int = 2, holdout: int = 4) -> Cases:
    """So many cases of each split."""
    parts = (("train", train), ("holdout", holdout))
    splits = [tuple(Case(f"{name}-{n}", n) for n in range(size)) for name, size in parts]
    return Cases(*splits)


def small_plan(runner: Runner, *proposers: Proposer) -> Plan:
    """A plan over one text; change what a test is about with `dataclasses.replace`."""
    return Plan(
        recipe="scripted",
        seed=SEED,
        rules=Rules({path: Artifact(path) for path in SEED.texts}),
        cases=small_cases(),
        runner=runner,
        scorer=RecordedScorer(),
        objective=Objective("score", bounds=(0.0, 1.0)),
        proposers=proposers,
        schedule=RoundRobin(tuple(proposer.name for proposer in proposers)),
        gate=Strict(),
        budget=Budget(max_iterations=10),
        workers=8,
    )


def sitting(
    plan: Plan, journal: MemoryJournal, clock: Clock | None = None, sinks: Sequence[Sink] = ()
) -> Loop:
    """The loop of a new run, or of one that the journal knows of; made inside an event loop."""
    clock = clock or FakeClock()
    past = fold_run(journal.events)
    if past.state.started is None:
        journal.save(plan.seed)
        event = RunStarted(
            run_id="run",
            recipe=plan.recipe,
            seed=plan.seed.id,
            inputs={},
            version="0",
            t=clock.time(),
        )
    else:
        event = RunResumed(version="0", t=clock.time())
    journal.append(event)
    state = advance(past.state, event)
    for sink in sinks:
        sink.on_event(event, state)
    return Loop(plan, journal, state, clock, sinks, past.opened)


async def sit(
    plan: Plan, journal: MemoryJournal, clock: Clock | None = None, sinks: Sequence[Sink] = ()
) -> State:
    """One sitting, from its first event to its last."""
    return await sitting(plan, journal, clock, sinks).run()
