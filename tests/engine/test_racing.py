"""A whole run that races: near misses, mergers, the proof, the claim, and what it costs."""

import asyncio
import hashlib
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import kept
from kept.core.event import RunStarted, StepClosed
from kept.core.plan import Plan
from kept.core.schedules.round_robin import CLAIM, PROVE
from kept.core.state import State, advance
from kept.engine.loop import Loop
from kept.gates.race import Race
from kept.testing import FakeClock, MemoryJournal
from tests.engine.worlds import CountingRunner, make_race

ROLLOUTS = 3000


def chance(*what: object) -> float:
    return int(hashlib.sha256(repr(what).encode()).hexdigest()[:12], 16) / 16**12


class World:
    """Lines that help, do nothing or harm, measured by noisy pass or fail."""

    def __init__(self, good: float, seed: int = 0) -> None:
        self.good = good
        self.seed = seed
        self.calls: list[tuple[str, int]] = []

    async def evaluate(self, candidate: kept.Candidate, case: int) -> float:
        text = candidate.text
        self.calls.append((candidate.id, case))
        nth = sum(call == (candidate.id, case) for call in self.calls[-2000:])
        logit = 0.6 * text.count("good") - 0.3 * text.count("bad") + chance(case) - 0.9
        return float(chance(self.seed, text, case, nth) < 1 / (1 + math.exp(-logit)))

    def propose(self, brief: kept.Brief) -> kept.Proposal:
        drawn = chance("proposal", self.seed, brief.step)
        kind = "good" if drawn < self.good else "bad" if drawn > 0.6 else "idle"
        return kept.Proposal((kept.Append("text", f"{kind} {brief.step}\n"),))


def run(
    path: Path,
    good: float,
    *,
    seed: int = 0,
    gate: kept.Gate | str = "race",
    budget: kept.Budget | None = None,
    sinks: Sequence[kept.Sink] = (),
) -> kept.Result:
    world = World(good, seed)
    return kept.optimize(
        "seed\n",
        world.evaluate,
        list(range(50)),
        proposers=[world.propose],
        gate=gate,  # pyright: ignore[reportArgumentType] # a word or a gate
        bounds=(0, 1),
        budget=budget or kept.Budget(max_rollouts=ROLLOUTS),
        workers=8,
        width=2,
        home=path,
        sinks=sinks,
    )


def names(state: State) -> list[str]:
    return [step.turn.proposer for step in state.history]


def test_good_lines_are_found_put_together_kept_and_proven(tmp_path: Path):
    result = run(tmp_path, good=0.3)
    state = result.state
    assert state.keeps >= 1
    assert result.best.text.count("good") > result.best.text.count("bad")
    assert names(state)[-2:] == [PROVE, CLAIM]
    assert [step.verdict.code for step in state.history][-2:] == ["promoted", "claim"]
    assert state.best == state.incumbent
    kept_steps = [step for step in state.history if step.verdict.outcome == "keep"]
    assert all(step.proposal is not None and step.proposal.merges for step in kept_steps)
    assert result.best_value is not None
    assert result.seed_value is not None
    assert result.best_value > result.seed_value


@pytest.mark.parametrize("seed", range(6))
def test_where_nothing_helps_nothing_is_kept(tmp_path: Path, seed: int):
    result = run(tmp_path, good=0.0, seed=seed)
    assert result.state.keeps == 0
    assert result.best.text == "seed\n"
    assert names(result.state)[-1] not in (PROVE, CLAIM), "there is nothing to prove"


class Indifferent:
    """Replaces the gate, to show that the tests above would notice."""

    name = "indifferent"

    def __init__(self, keeps: bool) -> None:
        self._keeps = keeps

    def decide(self, view: object) -> kept.Verdict:
        return kept.Verdict("keep" if self._keeps else "discard", "whatever", best=self._keeps)


def test_with_another_gate_in_its_place_the_ends_are_wrong(tmp_path: Path):
    steps = kept.Budget(max_iterations=30)
    careless = run(tmp_path, good=0.0, gate=Indifferent(keeps=True), budget=steps)
    assert careless.best.text != "seed\n"
    deaf = run(tmp_path, good=0.3, gate=Indifferent(keeps=False), budget=steps)
    assert deaf.state.keeps == 0


class Reads:
    """A sink that notes for what, and in which step, the sealed cases were read."""

    def __init__(self) -> None:
        self.purposes: set[str] = set()
        self.early = False
        self.closed: list[str] = []

    def on_event(self, event: object, state: State) -> None:
        if isinstance(event, StepClosed):
            self.closed.append(state.history[-1].turn.proposer)

    def on_rollout(self, job: kept.Job, outcome: object) -> None:
        self.purposes.add(job.purpose)
        self.early |= job.purpose == "test" and PROVE not in self.closed


def test_the_sealed_cases_are_read_once_at_the_end(tmp_path: Path):
    reads = Reads()
    result = run(tmp_path, good=0.3, sinks=[reads])
    assert reads.purposes == {"screen", "decide", "promote", "test"}
    assert not reads.early
    with kept.read_run(result.folder) as past:
        rows = [job for _, job, _ in past.rollouts() if job.purpose == "test"]
    assert len(rows) == len(set(rows)) == 2 * Race().claim_passes * 10
    assert {job.candidate_id for job in rows} == {result.state.seed, result.state.best}


def test_the_budget_holds_with_the_end_paid_for(tmp_path: Path):
    result = run(tmp_path, good=0.3)
    assert result.state.spend.rollouts <= ROLLOUTS
    assert result.stopped.kind == "rollouts"


def test_a_limit_on_steps_ends_with_the_pool_raced_and_the_proof(tmp_path: Path):
    result = run(tmp_path, good=0.5, budget=kept.Budget(max_iterations=12))
    assert result.state.pool == ()
    assert result.stopped.kind == "iterations"
    assert names(result.state)[-1] in (CLAIM, PROVE, "merge")


def test_levels_are_given_out_once(tmp_path: Path):
    state = run(tmp_path, good=0.3, gate=Race(pool_most=5)).state
    levels = [s.verdict.numbers["alpha"] for s in state.history if "alpha" in s.verdict.numbers]
    assert len(set(levels)) == len(levels) > 1
    assert sum(levels) <= 0.05 * (1 + state.keeps)


def test_a_limit_of_time_leaves_some_for_the_proof():
    plan, _, _ = make_race(1, 1000, 2)
    clock = FakeClock()

    class Slow(CountingRunner):
        async def run(
            self, job: kept.Job, candidate: kept.Candidate, case: kept.Case, scope: kept.Scope
        ) -> kept.Rollout | kept.Failure:
            await clock.sleep(0.1)
            return await super().run(job, candidate, case, scope)

    timed = replace(plan, runner=Slow(), budget=kept.Budget(max_minutes=1.0))
    state = asyncio.run(sit(timed, clock))
    assert state.stopped is not None
    assert state.stopped.kind == "minutes"
    assert state.keeps
    assert PROVE in names(state)
    assert not state.open


async def sit(plan: Plan, clock: FakeClock) -> State:
    journal = MemoryJournal()
    journal.save(plan.seed)
    event = RunStarted(run_id="r", recipe="test", seed=plan.seed.id, inputs={}, version="0", t=0.0)
    journal.append(event)
    return await Loop(plan, journal, advance(State(), event), clock).run()


@pytest.mark.parametrize("cases", [None, [1, 2, 3]])
def test_too_few_cases_are_told_before_anything_is_spent(tmp_path: Path, cases: list[int] | None):
    def evaluate(candidate: kept.Candidate, case: int = 0) -> float:
        return 1.0

    with pytest.raises(kept.SetupError, match="a race needs 8 deciding cases"):
        kept.optimize("seed", evaluate, cases, proposers=["good"], gate="race", home=tmp_path)


def test_the_same_proposal_again_is_no_second_near_miss(tmp_path: Path):
    async def evaluate(candidate: kept.Candidate, case: int) -> float:
        return float(chance(candidate.text, case) < 0.4 + 0.2 * candidate.text.count("good"))

    def propose(brief: kept.Brief) -> kept.Proposal:
        return kept.Proposal((kept.Append("text", "good\n"),))

    state = kept.optimize(
        "seed\n",
        evaluate,
        list(range(50)),
        proposers=[propose],
        gate="race",
        bounds=(0, 1),
        budget=12,
        width=1,
        home=tmp_path,
    ).state
    misses = [step for step in state.history if step.verdict.code == "near miss"]
    assert len({step.incumbent for step in misses}) == len(misses)


def test_without_train_cases_every_race_uses_up_its_level(tmp_path: Path):
    world = World(0.0)
    cases = kept.Cases(holdout=tuple(kept.Case(f"h{n}", n) for n in range(8)))
    state = kept.optimize(
        "seed\n",
        world.evaluate,
        cases,
        proposers=[world.propose],
        gate="race",
        bounds=(0, 1),
        budget=12,
        home=tmp_path,
    ).state
    assert state.ledger.tests == 12
    levels = [step.verdict.numbers["alpha"] for step in state.history]
    assert levels == sorted(set(levels), reverse=True)


def test_a_seed_that_always_fails_is_replaced_by_what_runs(tmp_path: Path):
    def evaluate(candidate: kept.Candidate, case: int) -> float | kept.Failure:
        if candidate.text == "seed":
            return kept.Failure("crash", "candidate", "it falls over")
        return 1.0

    result = kept.optimize(
        "seed", evaluate, list(range(20)), proposers=["runs"], gate="race", home=tmp_path
    )
    assert result.state.keeps == 1
    assert result.best.text == "runs"


def test_too_small_a_budget_is_told_before_anything_is_spent(tmp_path: Path):
    with pytest.raises(kept.SetupError, match="too few for a race"):
        run(tmp_path, good=0.3, budget=kept.Budget(max_rollouts=100))
    assert not (tmp_path / "runs").exists()


def test_a_proposer_by_the_name_of_the_races_own_is_refused(tmp_path: Path):
    def merge(brief: kept.Brief) -> str:
        return brief.incumbent.text + "x"

    def evaluate(candidate: kept.Candidate, case: int) -> float:
        return 1.0

    cases = list(range(20))
    with pytest.raises(kept.SetupError, match="merge"):
        kept.optimize("seed", evaluate, cases, proposers=[merge], gate="race", home=tmp_path)


class Outage(CountingRunner):
    """Does not answer while something is being proven, so many times."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times

    async def run(
        self, job: kept.Job, candidate: kept.Candidate, case: kept.Case, scope: kept.Scope
    ) -> kept.Rollout | kept.Failure:
        if job.purpose == "promote" and self.times > 0:
            self.times -= 1
            return kept.Failure("server", "infrastructure", "503")
        return await super().run(job, candidate, case, scope)


def test_an_outage_during_the_proof_leaves_it_to_be_asked_again():
    plan, _, _ = make_race(1, 16, 2)
    state = asyncio.run(sit(replace(plan, runner=Outage(100), retries=0), FakeClock()))
    proofs = [step.verdict.code for step in state.history if step.turn.proposer == PROVE]
    assert proofs[0] == "indecisive"
    assert proofs[-1] in ("promoted", "not promoted")
    assert state.ledger.promotions == 1


def test_a_proof_that_is_never_answered_stops_the_run_and_can_be_resumed():
    plan, _, _ = make_race(1, 16, 2)
    state = asyncio.run(sit(replace(plan, runner=Outage(10**6), retries=0), FakeClock()))
    assert state.stopped is not None
    assert (state.stopped.kind, state.stopped.resumable) == ("error", True)
    assert state.tried == ""


def test_briefs_show_on_which_train_cases_each_near_miss_is_strong(tmp_path: Path):
    world = World(0.3, 1)
    seen: list[kept.Brief] = []

    def propose(brief: kept.Brief) -> object:
        seen.append(brief)
        return world.propose(brief)

    kept.optimize(
        "seed\n",
        world.evaluate,
        list(range(50)),
        proposers=[propose],
        gate="race",
        bounds=(0, 1),
        budget=kept.Budget(max_rollouts=ROLLOUTS),
        width=2,
        home=tmp_path,
    )
    shown = [(brief, miss) for brief in seen for miss in brief.pool]
    assert shown
    for brief, miss in shown:
        train = {case.id for case in brief.train}
        assert {case for case, _ in miss.losses} <= train, "no deciding case is told"
        assert miss.losses
