"""Test runner with a known truth, noise and faults, and small in-memory runs.

Every rollout is determined by candidate, case, repeat and purpose. Equal pairs give equal
results; different pairs are independent. A run is one session of a small plan on a journal in
memory.
"""

import asyncio
import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Literal

from kept.core.artifact import Artifact, Candidate, Rules
from kept.core.budget import Budget
from kept.core.case import Case, Cases
from kept.core.event import RunResumed, RunStarted
from kept.core.objective import Objective
from kept.core.plan import Plan
from kept.core.ports import Clock, Proposer, Runner, Scope, Sink
from kept.core.rollout import FREE, Failure, Job, Rollout, TraceItem, Usage
from kept.core.schedules.round_robin import RoundRobin
from kept.core.state import State, advance
from kept.engine.loop import Loop
from kept.evaluators.runners.function import RecordedScorer
from kept.gates.seed_rules import Strict
from kept.store.reader import fold_run
from kept.testing.fakes import FakeClock
from kept.testing.journal import MemoryJournal

Quality = Callable[[Candidate, Case], float]
"""The true quality of a candidate on a case."""

OUTAGE = Failure("server", "infrastructure", "503: the service is away")
CRASH = Failure("crash", "candidate", "the candidate crashed")


@dataclass(frozen=True, slots=True)
class Faults:
    """What goes wrong, and how often."""

    outages: float = 0.0
    """Share of pairs whose first tries meet an outage."""
    tries: int = 1
    """How many tries of such a pair fail before one gets through."""
    crashes: float = 0.0
    """Share of pairs that the candidate fails by its own fault."""
    outage: Failure = OUTAGE
    crash: Failure = CRASH


def at_once(job: Job) -> float:
    """Take no time."""
    return 0.0


def never(job: Job) -> None:
    """Nothing special about any job."""


def no_more(candidate: Candidate, case: Case) -> Mapping[str, float]:
    """Measure nothing else."""
    return {}


@dataclass(slots=True, kw_only=True, eq=False)
class ScriptedEvaluator:
    """Implements `kept.core.ports.Runner`; its rollouts carry their metrics."""

    quality: Quality
    noise: float | Literal["pass/fail"] = 0.0
    """Standard deviation around the quality, or: 1 with that probability, else 0."""
    faults: Faults = field(default_factory=Faults)
    seconds: Callable[[Job], float] = at_once
    """How long a job takes on the clock."""
    hangs: Callable[[Job], bool | None] = never
    """Jobs that end only when they are cancelled."""
    fails: Callable[[Job], Failure | None] = never
    """Jobs that fail, and how."""
    clock: Clock = field(default_factory=FakeClock)
    metric: str = "score"
    also: Callable[[Candidate, Case], Mapping[str, float]] = no_more
    """Further measures."""
    usage: Usage = FREE
    traces: bool = False
    """Whether a rollout tells what happened."""
    random_seed: int = 0
    log: list[Job] = field(init=False, default_factory=list[Job])
    """Every try that was started, in order."""
    cancelled: list[Job] = field(init=False, default_factory=list[Job])
    tries: Counter[Job] = field(init=False, default_factory=Counter[Job])
    flying: int = field(init=False, default=0)
    """Tries under way."""
    peak: int = field(init=False, default=0)
    """Most tries that were under way at once."""
    closed: int = field(init=False, default=0)
    """How often it was closed."""

    async def run(
        self, job: Job, candidate: Candidate, case: Case, scope: Scope
    ) -> Rollout | Failure:
        """One try."""
        self.log.append(job)
        self.tries[job] += 1
        self.flying += 1
        self.peak = max(self.peak, self.flying)
        try:
            await self._pass_time(job)
        except asyncio.CancelledError:
            self.cancelled.append(job)
            raise
        finally:
            self.flying -= 1
        return self._failure(job) or self._rollout(job, candidate, case)

    async def close(self) -> None:
        """Count it."""
        self.closed += 1

    async def _pass_time(self, job: Job) -> None:
        if self.hangs(job):
            await asyncio.get_running_loop().create_future()
        seconds = self.seconds(job)
        if seconds > 0:
            await self.clock.sleep(seconds)

    def _failure(self, job: Job) -> Failure | None:
        faults = self.faults
        if failure := self.fails(job):
            return failure
        if self._draw(job, "outage") < faults.outages and self.tries[job] <= faults.tries:
            return faults.outage
        return faults.crash if self._draw(job, "crash") < faults.crashes else None

    def _rollout(self, job: Job, candidate: Candidate, case: Case) -> Rollout:
        value = self._noisy(self.quality(candidate, case), self._draw(job, "noise"))
        item = TraceItem("info", f"{case.id}: {value:g}")
        return Rollout(
            output=f"{value:g}",
            metrics={self.metric: value, **self.also(candidate, case)},
            trace=(item,) if self.traces else (),
            usage=self.usage,
        )

    def _noisy(self, quality: float, draw: float) -> float:
        if self.noise == "pass/fail":
            return float(draw < quality)
        return NormalDist(quality, self.noise).inv_cdf(draw) if self.noise > 0 else quality

    def _draw(self, job: Job, what: str) -> float:
        """A number between 0 and 1, neither included."""
        name = f"{self.random_seed}\0{what}\0{job.scope}".encode("utf-8", "surrogatepass")
        number = int.from_bytes(hashlib.sha256(name).digest()[:6], "big")
        return (number + 0.5) / 2**48


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
