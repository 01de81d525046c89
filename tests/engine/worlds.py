"""A small world for tests of the engine: noisy scores, proposers of every sort, a call counter."""

import asyncio
import hashlib
import random
from collections import Counter
from dataclasses import dataclass, field, replace

from kept.core.artifact import Artifact, Candidate, Rules
from kept.core.budget import Budget
from kept.core.case import Case, Cases, implicit_cases
from kept.core.edit import Append, Replace, Write
from kept.core.llm import Message, ModelReply, ModelRequest
from kept.core.objective import Objective, TieBreaker
from kept.core.plan import Plan
from kept.core.ports import Scope
from kept.core.proposal import Ask, Brief, Note, Proposal, ProposerReply, Skip
from kept.core.rollout import Failure, Job, Pair, Rollout, TraceItem, Usage
from kept.core.schedules.bandit import Bandit
from kept.core.schedules.coordinate import Coordinate, Phase
from kept.core.schedules.round_robin import Pooling, RoundRobin, Turns
from kept.evaluators.runners.function import RecordedScorer
from kept.gates.compare import Compare
from kept.gates.race import Race
from kept.gates.repeats import Repeats
from kept.gates.seed_rules import Strict
from kept.gates.sigma import Sigma
from kept.gates.simplify import Simplify
from kept.proposers.variants import SEED_ALONE, Variant, Variants
from kept.recipes.race_choice import with_race

CASES = Cases(
    train=tuple(Case(f"t{n}", n) for n in range(3)),
    holdout=tuple(Case(f"h{n}", n) for n in range(4)),
)


def draw(*what: object) -> float:
    """A number in [0, 1) that depends on its arguments alone."""
    digest = hashlib.sha256(repr(what).encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**48


@dataclass
class CountingRunner:
    """Scores by content with noise; answers in an order that differs from sitting to sitting."""

    calls: Counter[Job] = field(default_factory=Counter[Job])
    finished: Counter[Job] = field(default_factory=Counter[Job])
    """Calls that were not cancelled on the way."""
    order: random.Random = field(default_factory=random.Random)

    async def run(
        self, job: Job, candidate: Candidate, case: Case, scope: Scope
    ) -> Rollout | Failure:
        self.calls[job] += 1
        for _ in range(self.order.randrange(4)):
            await asyncio.sleep(0)
        self.finished[job] += 1
        if draw("crash", candidate.id) < 0.1:
            return Failure("crash", "candidate", "it fell over")
        quality = candidate.texts["prompt"].count("good") - candidate.texts["prompt"].count("bad")
        score = quality / 4 + draw(*job)
        return Rollout(metrics={"score": score}, trace=(TraceItem("info", f"{job}"),))

    async def close(self) -> None:
        pass


@dataclass
class SteadySeed(CountingRunner):
    """The seed always says the same: that runs differ shows with a challenger, when others wait."""

    async def run(
        self, job: Job, candidate: Candidate, case: Case, scope: Scope
    ) -> Rollout | Failure:
        told = await super().run(job, candidate, case, scope)
        seed = candidate.texts["prompt"] == "seed\n"
        return Rollout(metrics={"score": 0.5}) if seed else told


@dataclass
class CountingModel:
    """Answers with a number made from the request."""

    calls: Counter[str] = field(default_factory=Counter[str])
    name: str = "counting"

    async def complete(self, request: ModelRequest) -> ModelReply | Failure:
        text = request.messages[0].text
        self.calls[text] += 1
        await asyncio.sleep(0)
        return ModelReply(f"{draw(text):.6f}", Usage(calls=1, tokens_in=len(text), usd=0.001))


@dataclass(frozen=True)
class Editor:
    """Serial: looks at the open proposals, and never repeats the word one of them adds."""

    name: str = "editor"
    serial: bool = True

    async def propose(self, brief: Brief, scope: Scope) -> ProposerReply:
        words = ["good", "bad", "plain", "good", "bad"]
        taken = {edit.text for p in brief.open for edit in p.edits if isinstance(edit, Append)}
        word = words[int(draw(brief.seed) * len(words))]
        line = f"{word} {brief.step} among {len(taken)}\n"
        if draw(brief.seed, "how") < 0.2:
            return Proposal((Write("prompt", line),), why="start over")
        if draw(brief.seed, "how") < 0.3:
            return Proposal((Replace("prompt", "seed", "sown"),), why="works once")
        return Proposal((Append("prompt", line),), why="one line more")


@dataclass(frozen=True)
class Asker:
    """Parallel: asks for feedback rollouts, then for a model's opinion in two branches."""

    model: CountingModel
    name: str = "asker"
    serial: bool = False

    async def propose(self, brief: Brief, scope: Scope) -> ProposerReply:
        if not brief.answers:
            pairs = tuple(Pair(case.id, 0) for case in brief.train)
            return Ask(brief.incumbent.id, pairs, "feedback")
        (answer,) = brief.answers
        seen = " ".join(f"{o.metrics}" for o in answer.outcomes.values())
        assert len(answer.traces) in (0, len(brief.train))

        async def opinion(name: str) -> float:
            request = ModelRequest((Message("user", f"{brief.step} {name} {seen}"),))
            branch = scope.branch(name)
            reply = await branch.call(request, ModelReply, lambda: self.model.complete(request))
            return 0.0 if isinstance(reply, Failure) else float(reply.text)

        first, second = await asyncio.gather(opinion("first"), opinion("second"))
        if first < 0.15:
            return Note(f"nothing at step {brief.step}")
        if first < 0.3:
            return Skip("no idea")
        word = "good" if second < 0.5 else "bad"
        return Proposal((Append("prompt", f"{word} by {first:.3f}\n"),), why=seen[:20])


def make_plan(
    width: int, steps: int = 14, seed: int = 0
) -> tuple[Plan, CountingRunner, CountingModel]:
    """A plan with a serial and a parallel proposer, and what counts its calls."""
    runner, model = CountingRunner(), CountingModel()
    plan = Plan(
        recipe="test",
        seed=Candidate({"prompt": "seed\n"}),
        rules=Rules({"prompt": Artifact("prompt")}),
        cases=CASES,
        runner=runner,
        scorer=RecordedScorer(),
        objective=Objective(bounds=(-20.0, 20.0)),
        proposers=(Editor(), Asker(model)),
        schedule=RoundRobin(("editor", "asker")),
        gate=Strict(),
        budget=Budget(max_iterations=steps),
        width=width,
        workers=6,
        random_seed=seed,
    )
    return plan, runner, model


def make_race(
    width: int, steps: int = 14, seed: int = 0
) -> tuple[Plan, CountingRunner, CountingModel]:
    """The same world, racing: with near misses, mergers, a proof and a claim."""
    plan, runner, model = make_plan(width, steps, seed)
    test = tuple(Case(f"s{n}", n) for n in range(2))
    holdout = tuple(Case(f"h{n}", n) for n in range(8))
    race = Race(most=8, promote_passes=(4, 8), pool_goal=0.3, pool_most=3, alpha=0.5)
    racing = replace(
        plan,
        gate=race,
        objective=Objective(),
        cases=Cases(train=CASES.train, holdout=holdout, test=test),
    )
    return with_race(racing), runner, model


def make_drawn(
    width: int, steps: int = 14, seed: int = 0
) -> tuple[Plan, CountingRunner, CountingModel]:
    """The same race, with turns by what proposers have brought."""
    plan, runner, model = make_race(width, steps, seed)
    assert isinstance(plan.schedule, Pooling)
    drawn = Bandit(("editor", "asker"), seed)
    return replace(plan, schedule=replace(plan.schedule, inner=drawn)), runner, model


def make_coordinate(
    width: int, steps: int = 14, seed: int = 0
) -> tuple[Plan, CountingRunner, CountingModel]:
    """The same world, phase by phase by the rule of `sigma`; `steps` are those of a phase."""
    plan, runner, model = make_plan(width, steps, seed)
    phases = (Phase("first", "editor", steps, 3), Phase("second", "asker", steps, 3))
    return (
        replace(
            plan,
            proposers=(SEED_ALONE, *plan.proposers),
            schedule=Coordinate(phases, max_cycles=2),
            gate=Sigma(repeats=2, accept_sigma=0.2),
            budget=Budget(),
        ),
        runner,
        model,
    )


def make_coordinate_race(
    width: int, steps: int = 14, seed: int = 0
) -> tuple[Plan, CountingRunner, CountingModel]:
    """The same, racing: every trial is raced at once, and what leads is proven at the end."""
    plan, runner, model = make_race(width, steps, seed)
    phased, _, _ = make_coordinate(width, steps, seed)
    whole = replace(
        phased, gate=plan.gate, cases=plan.cases, objective=plan.objective, runner=runner
    )
    return with_race(replace(whole, proposers=(SEED_ALONE, Editor(), Asker(model)))), runner, model


@dataclass(frozen=True)
class Broken:
    """Never has anything to propose but a failure."""

    name: str = "broken"
    serial: bool = False

    async def propose(self, brief: Brief, scope: Scope) -> ProposerReply:
        raise KeyError("temperature")


def make_failing(
    width: int, steps: int = 14, seed: int = 0
) -> tuple[Plan, CountingRunner, CountingModel]:
    """The same, with one more proposer, which fails."""
    plan, runner, model = make_drawn(width, steps, seed)
    assert isinstance(plan.schedule, Pooling)
    drawn = Bandit(("editor", "broken"), seed)
    schedule = replace(plan.schedule, inner=drawn)
    return replace(plan, proposers=(*plan.proposers, Broken()), schedule=schedule), runner, model


@dataclass(frozen=True)
class Builder(Editor):
    """May be given a near miss to edit."""

    builds: bool = True


def make_building(
    width: int, steps: int = 14, seed: int = 0
) -> tuple[Plan, CountingRunner, CountingModel]:
    """The same race, in which near misses are built on."""
    plan, runner, model = make_race(width, steps, seed)
    assert isinstance(plan.schedule, Pooling)
    own = tuple(Builder() if isinstance(one, Editor) else one for one in plan.proposers)
    schedule = replace(
        plan.schedule,
        builders=frozenset({"editor"}),
        waited=0,
        goal=0.5,
        most=4,
        inner=RoundRobin(("editor",)),
    )
    return replace(plan, proposers=own, schedule=schedule), runner, model


def make_proof(
    width: int, steps: int = 10, seed: int = 0
) -> tuple[Plan, CountingRunner, CountingModel]:
    """The same race with a pool that never gets large enough: all is left to the end."""
    plan, runner, model = make_race(width, steps, seed)
    assert isinstance(plan.schedule, Pooling)
    return replace(plan, schedule=replace(plan.schedule, goal=99.0, most=99)), runner, model


def make_final(
    width: int, steps: int = 5, seed: int = 0
) -> tuple[Plan, CountingRunner, CountingModel]:
    """Whole texts that take each other's place, of which the best two are close."""
    plan, runner, model = make_plan(width, steps, seed)
    words = ("bad", "good", "plain", "good good", "good good plain")[:steps]
    texts = [f"{word} {seed}\n" for word in words]
    racing = replace(
        plan,
        cases=Cases(
            train=CASES.train,
            holdout=tuple(Case(f"h{n}", n) for n in range(8)),
            test=tuple(Case(f"s{n}", n) for n in range(2)),
        ),
        proposers=(Variants(tuple(Variant({"prompt": text}, text) for text in texts)),),
        schedule=RoundRobin(("variants",)),
        gate=Race(promote_alpha=0.2),
        budget=Budget(),
    )
    return with_race(racing), runner, model


@dataclass(frozen=True)
class Trimmer:
    """Leaves out a line, as long as there are two."""

    name: str = "trimmer"
    serial: bool = True

    async def propose(self, brief: Brief, scope: Scope) -> ProposerReply:
        lines = brief.incumbent.texts["prompt"].splitlines(keepends=True)
        at = int(draw(brief.seed, "at") * len(lines))
        if len(lines) < 2:
            return Skip("there is nothing to leave out")
        text = "".join(lines[:at] + lines[at + 1 :])
        return Proposal((Write("prompt", text),), why="one line less", simplifies=True)


def make_simplification(
    width: int, steps: int = 14, seed: int = 0
) -> tuple[Plan, CountingRunner, CountingModel]:
    """The same race, with somebody who leaves lines out; a scale that few draws are enough for."""
    plan, runner, model = make_race(width, steps, seed)
    assert isinstance(plan.gate, Race)
    assert isinstance(plan.schedule, Pooling)
    simplify = replace(plan.gate.simplify, margin=0.15, alpha=0.5)
    lines = "".join(f"{'good ' * 8 if n % 3 else 'plain'} {n}\n" for n in range(4))
    simpler = replace(
        plan,
        seed=Candidate({"prompt": f"seed\n{lines}"}),
        gate=replace(plan.gate, simplify=simplify),
        objective=Objective(bounds=(-3.0, 7.0)),
        proposers=(Trimmer(), *plan.proposers),
        schedule=replace(plan.schedule, inner=RoundRobin(("trimmer", "editor"))),
    )
    return simpler, runner, model


def make_repeats(
    width: int, steps: int = 8, seed: int = 0
) -> tuple[Plan, CountingRunner, CountingModel]:
    """The same world without cases, where every run differs."""
    plan, runner, model = make_plan(width, steps, seed)
    # a careless level, so that something is kept and others are judged anew
    gate = Repeats(alpha=4.0, most=20)
    alone = replace(plan, cases=implicit_cases(), gate=gate, objective=Objective())
    return alone, runner, model


def make_turning(
    width: int, steps: int = 8, seed: int = 0
) -> tuple[Plan, CountingRunner, CountingModel]:
    """A run without cases in which it only shows after a while that runs differ."""
    plan, _, model = make_repeats(width, steps, seed)
    runner = SteadySeed()
    return replace(plan, runner=runner, gate=Repeats(alpha=1.0, most=20)), runner, model


def make_comparison(
    width: int, steps: int = 3, seed: int = 0
) -> tuple[Plan, CountingRunner, CountingModel]:
    """So many texts compared with the seed: a better one, one that is alike, a worse one."""
    plan, runner, model = make_plan(width, steps, seed)
    texts = [f"{word} {seed}\n" for word in ("good " * 3, "plain", "bad " * 2)][:steps]
    comparing = replace(
        plan,
        cases=Cases(holdout=tuple(Case(f"h{n}", n) for n in range(9))),
        proposers=(Variants(tuple(Variant({"prompt": text}, text) for text in texts)),),
        schedule=Turns("variants", len(texts)),
        gate=Compare(challengers=len(texts), most=4),
        budget=Budget(),
    )
    return comparing, runner, model


@dataclass
class Priced(CountingRunner):
    """What is `short` costs less and is as good; nobody emits the cost as a measure."""

    async def run(
        self, job: Job, candidate: Candidate, case: Case, scope: Scope
    ) -> Rollout | Failure:
        self.calls[job] += 1
        await asyncio.sleep(0)
        self.finished[job] += 1
        number = int(str(case.data))
        price = (1 + number % 5) * 0.6 ** candidate.texts["prompt"].count("short")
        right = float(draw("right", *job) < (0.97, 0.05)[number % 2])
        usage = Usage(calls=1, usd=price * (0.95 + 0.1 * draw("price", *job)))
        return Rollout(metrics={"score": right}, usage=usage)


@dataclass(frozen=True)
class Shortener:
    """Makes it shorter, and then changes it to no use."""

    name: str = "shortener"
    serial: bool = False

    async def propose(self, brief: Brief, scope: Scope) -> ProposerReply:
        word = "short" if brief.turn.number == 0 else "idle"
        return Proposal((Append("prompt", f"{word} {brief.step}\n"),))


def make_ties(
    width: int, steps: int = 3, seed: int = 0
) -> tuple[Plan, CountingRunner, CountingModel]:
    """A race in which what costs less is kept for that."""
    plan, _, model = make_plan(width, steps, seed)
    runner = Priced()
    racing = replace(
        plan,
        runner=runner,
        gate=Race(simplify=Simplify(margin=0.3)),
        objective=Objective(bounds=(0.0, 1.0), tie_breakers=(TieBreaker("usd"),)),
        proposers=(Shortener(),),
        schedule=RoundRobin(("shortener",)),
        cases=Cases(
            train=tuple(Case(f"t{n}", n) for n in range(10)),
            holdout=tuple(Case(f"h{n}", n) for n in range(20)),
        ),
    )
    return with_race(racing), runner, model
