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
"""True quality of a candidate on a case."""

OUTAGE = Failure("server", "infrastructure", "503: the service is away")
CRASH = Failure("crash", "candidate", "the candidate crashed")


@dataclass(frozen=True, slots=True)
class Faults:
    """Kinds and rates of faults."""

    outages: float = 0.0
    """Share of pairs whose first tries hit an outage."""
    tries: int = 1
    """Number of failing tries of such a pair before one succeeds."""
    crashes: float = 0.0
    """Share of pairs that crash by the candidate's fault."""
    outage: Failure = OUTAGE
    crash: Failure = CRASH


def at_once(job: Job) -> float:
    """Zero seconds for every job."""
    return 0.0


def never(job: Job) -> None:
    """None for every job."""


def no_more(candidate: Candidate, case: Case) -> Mapping[str, float]:
    """No further measures."""
    return {}


@dataclass(slots=True, kw_only=True, eq=False)
class ScriptedEvaluator:
    """Runner with a known truth; implements `kept.core.ports.Runner` and scores its rollouts."""

    quality: Quality
    noise: float | Literal["pass/fail"] = 0.0
    """Standard deviation around the quality; with `pass/fail`, 1 with that probability, else 0."""
    faults: Faults = field(default_factory=Faults)
    seconds: Callable[[Job], float] = at_once
    """Duration of a job on the clock, in seconds."""
    hangs: Callable[[Job], bool | None] = never
    """Jobs that end only by cancellation."""
    fails: Callable[[Job], Failure | None] = never
    """Failure of a job; None for success."""
    clock: Clock = field(default_factory=FakeClock)
    metric: str = "score"
    also: Callable[[Candidate, Case], Mapping[str, float]] = no_more
    """Further measures."""
    usage: Usage = FREE
    traces: bool = False
    """True if rollouts carry a trace."""
    random_seed: int = 0
    log: list[Job] = field(init=False, default_factory=list[Job])
    """Every started try, in order."""
    cancelled: list[Job] = field(init=False, default_factory=list[Job])
    tries: Counter[Job] = field(init=False, default_factory=Counter[Job])
    flying: int = field(init=False, default=0)
    """Number of tries in flight."""
    peak: int = field(init=False, default=0)
    """Maximum number of tries that were in flight at once."""
    closed: int = field(init=False, default=0)
    """Number of `close` calls."""

    async def run(
        self, job: Job, candidate: Candidate, case: Case, scope: Scope
    ) -> Rollout | Failure:
        """Run one try."""
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
        """Count the call."""
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
        """Reproducible number between 0 and 1, both excluded."""
        name = f"{self.random_seed}\0{what}\0{job.scope}".encode("utf-8", "surrogatepass")
        number = int.from_bytes(hashlib.sha256(name).digest()[:6], "big")
        return (number + 0.5) / 2**48


SEED = Candidate({"text": "a seed\n"})


def small_cases(train: int = 2, holdout: int = 4) -> Cases:
    """Cases with the given number in each split."""
    parts = (("train", train), ("holdout", holdout))
    splits = [tuple(Case(f"{name}-{n}", n) for n in range(size)) for name, size in parts]
    return Cases(*splits)


def small_plan(runner: Runner, *proposers: Proposer) -> Plan:
    """Small plan over one text; adapt it with `dataclasses.replace`."""
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
    """Loop of a new run, or of the run in the journal; must be called inside an event loop."""
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
    """Run one session from its first event to its last."""
    return await sitting(plan, journal, clock, sinks).run()
