"""Numeric search: inside its space, never twice the same, better than chance, stateless."""

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kept.core.artifact import Artifact, Candidate, Rules
from kept.core.case import IMPLICIT_CASE, Case, Cases, implicit_cases
from kept.core.edit import apply_edits
from kept.core.objective import Constraint, Objective
from kept.core.plan import Plan
from kept.core.ports import Proposer
from kept.core.proposal import Ask, Brief, ClosedStep, History, Proposal, Skip, Turn, derive_seed
from kept.core.rollout import Failure, Job
from kept.core.verdict import Verdict
from kept.engine.replay import JournalScope
from kept.proposers.numeric.search import Numeric
from kept.proposers.numeric.space import Axis, Choices, Numbers, Point, Space
from kept.run import Watch, resume, start
from kept.spec.locate.tree import locate
from kept.store.home import Home
from kept.testing import MemoryJournal, ProposerSuite, ScriptedEvaluator
from kept.testing.run import sit, small_plan
from tests.engine.test_cut_and_resume import Home1, Moments, cut

CONFIG = "model: {temperature: 0.5}\ntop_k: 4  # of 20\nrate: 0.001\nmode: slow\n"
MIXED = Space(
    (
        Axis("config.yaml", "model.temperature", Numbers(0.0, 1.0)),
        Axis("config.yaml", "top_k", Numbers(1, 20, whole=True)),
        Axis("config.yaml", "rate", Numbers(1e-5, 1e-1, log=True)),
        Axis("config.yaml", "mode", Choices(("slow", "fast", True))),
    )
)
START: Point = (0.5, 4, 0.001, "slow")
BOWL = Space((Axis("c.toml", "x", Numbers(-10.0, 10.0)), Axis("c.toml", "y", Numbers(-10.0, 10.0))))


def closed(step: int, proposal: Proposal, loss: float | None, verdict: Verdict) -> ClosedStep:
    return ClosedStep(
        step, Turn("numeric", number=step), "seed", f"c{step}", proposal, (), verdict, loss
    )


def judged(step: int, proposal: Proposal, loss: float) -> ClosedStep:
    numbers = {"incumbent": -1.0, "challenger": -loss}
    return closed(step, proposal, loss, Verdict("discard", "worse", numbers=numbers))


def brief(
    step: int,
    past: Sequence[ClosedStep],
    text: str = CONFIG,
    train: tuple[Case, ...] = (IMPLICIT_CASE,),
    path: str = "config.yaml",
) -> Brief:
    return Brief(
        step=step,
        turn=Turn("numeric", number=step),
        seed=derive_seed(0, "main", step),
        incumbent=Candidate({path: text}),
        history=History(past),
        open=(),
        train=train,
        memory=(),
        rules=Rules({path: Artifact(path)}),
        objective=Objective(),
    )


def ask(proposer: Proposer, brief: Brief) -> object:
    return asyncio.run(proposer.propose(brief, JournalScope(MemoryJournal(), "propose")))


def search(space: Space, text: str, loss: Callable[[Point], float], steps: int) -> list[Point]:
    """Points of a run in which nothing is ever kept."""
    path = space.axes[0].file
    read = space.read({path: text})
    assert isinstance(read, tuple)
    proposer = Numeric(space, read)
    past: list[ClosedStep] = []
    points: list[Point] = []
    for step in range(steps):
        reply = ask(proposer, brief(step, past, text, path=path))
        if isinstance(reply, Skip):
            assert reply.exhausted
            break
        assert isinstance(reply, Proposal)
        point = space.meant(reply)
        assert point is not None
        points.append(point)
        past.append(judged(step, reply, loss(point)))
    return points


class TestNumericOnTheImplicitCase(ProposerSuite):
    steps = 9

    def make_proposer(self) -> Proposer:
        return Numeric(MIXED, START)

    def incumbent(self) -> Candidate:
        return Candidate({"config.yaml": CONFIG})

    def brief(self, step: int = 0) -> Brief:
        return replace(super().brief(step), train=(IMPLICIT_CASE,))

    def closed(self, step: int) -> tuple[ClosedStep, ...]:
        chance = random.Random(1)
        points = [MIXED.draw(chance) for _ in range(step)]
        rows = [judged(n, Proposal(MIXED.edits(p)), chance.random()) for n, p in enumerate(points)]
        if step > 4:
            rows[2] = replace(rows[2], loss=None, verdict=Verdict("crash", "it fell over"))
        return tuple(rows)


class TestNumericWithTrainCases(TestNumericOnTheImplicitCase):
    def brief(self, step: int = 0) -> Brief:
        return ProposerSuite.brief(self, step)


@pytest.mark.slow
def test_two_hundred_points_are_in_range_of_the_right_type_and_never_the_same_twice():
    points = search(MIXED, CONFIG, lambda p: abs(float(p[0]) - 0.3), 200)
    assert len(set(points)) == len(points) == 200
    assert START not in points
    for temperature, top_k, rate, mode in points:
        assert type(temperature) is float
        assert 0.0 <= temperature <= 1.0
        assert type(top_k) is int
        assert 1 <= top_k <= 20
        assert type(rate) is float
        assert 1e-5 <= rate <= 1e-1
        assert mode in ("slow", "fast", True)
    assert len({point[3] for point in points}) == 3


def test_on_a_log_axis_all_magnitudes_are_alike_probable():
    chance = random.Random(0)
    rates = sorted(float(MIXED.draw(chance)[2]) for _ in range(400))
    assert 5e-4 < rates[200] < 2e-3


def test_steps_stay_on_their_grid():
    space = Space(
        (
            Axis("c.toml", "x", Numbers(0.1, 0.95, step=0.2)),
            Axis("c.toml", "y", Numbers(-3, 8, whole=True, step=5)),
        )
    )
    points = search(space, "x = 0.1\ny = -3\n", lambda p: float(p[0]), 40)
    assert {point[0] for point in points} == {0.1, 0.3, 0.5, 0.7, 0.9}
    assert {point[1] for point in points} == {-3, 2, 7}


def test_a_space_that_is_used_up_is_exhausted_and_every_point_was_tried_once():
    space = Space(
        (
            Axis("c.toml", "x", Numbers(1, 6, whole=True)),
            Axis("c.toml", "y", Choices((False, "a", 2.5))),
        )
    )
    points = search(space, 'x = 3\ny = "a"\n', lambda p: float(p[0]), 99)
    assert sorted(map(str, points)) == sorted(str(p) for p in space.all() if p != (3, "a"))


def test_points_that_are_open_are_not_proposed_and_do_not_exhaust_a_space():
    space = Space((Axis("c.toml", "x", Numbers(1, 3, whole=True)),))
    proposer = Numeric(space, (1,))
    base = brief(0, (), "x = 1\n", path="c.toml")
    first = ask(proposer, base)
    assert isinstance(first, Proposal)
    second = ask(proposer, replace(base, open=(first,)))
    assert isinstance(second, Proposal)
    assert {space.meant(first), space.meant(second)} == {(2,), (3,)}
    assert ask(proposer, replace(base, open=(first, second))) == Skip(
        "all 3 points drawn were tried before", exhausted=False
    )


def test_a_point_whose_step_went_stale_may_be_tried_again():
    space = Space((Axis("c.toml", "x", Numbers(1, 2, whole=True)),))
    tried = Proposal(space.edits((2,)))
    stale, open_question = Verdict("skip", "", code="stale"), Verdict("skip", "", code="indecisive")
    for verdict, again in ((stale, True), (open_question, True), (Verdict("discard", ""), False)):
        past = [closed(0, tried, None, verdict)]
        reply = ask(Numeric(space, (1,)), brief(1, past, "x = 1\n", path="c.toml"))
        assert isinstance(reply, Proposal if again else Skip), verdict


def test_the_point_that_the_seed_stood_at_is_not_tried_after_a_keep():
    space = Space((Axis("c.toml", "x", Numbers(1, 2, whole=True)),))
    past = [closed(0, Proposal(space.edits((2,))), 0.0, Verdict("keep", "better"))]
    reply = ask(Numeric(space, (1,)), brief(1, past, "x = 2\n", path="c.toml"))
    assert isinstance(reply, Skip)
    assert reply.exhausted


def test_a_value_that_is_gone_is_a_skip_with_its_reason():
    reply = ask(Numeric(BOWL, (0.0, 0.0)), brief(0, (), "x = 1.0\n", path="c.toml"))
    assert isinstance(reply, Skip)
    assert not reply.exhausted
    assert "no key `y`" in reply.why


def test_why_names_what_changes_and_edits_change_nothing_else():
    base = brief(0, ())
    reply = ask(Numeric(MIXED, START), base)
    assert isinstance(reply, Proposal)
    applied = apply_edits(base.incumbent, reply.edits, base.rules, locate)
    assert MIXED.read(applied.candidate.texts) == MIXED.meant(reply)
    assert "# of 20" in applied.candidate.text
    assert reply.why.startswith("model.temperature 0.5 → 0.")


def bowl(point: Point) -> float:
    x, y = (float(value) for value in point)
    return (x - 3.0) ** 2 + (y + 4.0) ** 2


@pytest.mark.slow
def test_it_beats_random_search_on_a_bowl_with_the_same_budget():
    ours: list[float] = []
    theirs: list[float] = []
    for seed in range(5):
        text = f"x = {seed}.5\ny = {2 * seed}.5\n"
        ours.append(min(map(bowl, search(BOWL, text, bowl, 40))))
        chance = random.Random(seed)
        theirs.append(min(bowl(BOWL.draw(chance)) for _ in range(40)))
    assert sum(ours) < sum(theirs) / 2
    assert sorted(ours)[2] < sorted(theirs)[2]


def test_where_candidates_crash_or_break_a_constraint_it_seldom_goes_again():
    space = Space((Axis("c.toml", "x", Numbers(0.0, 1.0)),))
    for verdict in (Verdict("crash", "x"), Verdict("discard", "x", code="constraint")):
        past: list[ClosedStep] = []
        proposer = Numeric(space, (0.1,))
        wrong = 0
        for step in range(30):
            reply = ask(proposer, brief(step, past, "x = 0.1\n", path="c.toml"))
            assert isinstance(reply, Proposal)
            point = space.meant(reply)
            assert point is not None
            bad = float(point[0]) > 0.5
            wrong += bad and step >= 10
            # the loss of a candidate that breaks a constraint looks tempting
            loss = -9.0 if bad else abs(float(point[0]) - 0.2)
            row = closed(step, reply, loss, verdict) if bad else judged(step, reply, loss)
            past.append(row)
        assert wrong <= 6, f"{wrong} of 20 draws where {verdict} is certain"


def test_with_cases_it_is_told_what_train_rollouts_say_and_never_a_deciding_loss():
    train = tuple(Case(f"t{n}", n) for n in range(6))
    points = [BOWL.draw(random.Random(n)) for n in range(6)]
    asked: list[str] = []

    def reply_to(losses: Sequence[float]) -> object:
        past = [judged(n, Proposal(BOWL.edits(p)), losses[n]) for n, p in enumerate(points)]
        proposer = Numeric(BOWL, (0.0, 0.0), train_sample=4)
        suite = ProposerSuite()
        asked.clear()
        now = brief(6, past, "x = 0.0\ny = 0.0\n", train, "c.toml")
        while isinstance(reply := ask(proposer, now), Ask):
            asked.append(reply.candidate)
            assert reply.purpose == "feedback"
            assert len(reply.pairs) == 4
            now = replace(now, answers=(*now.answers, suite._answer(reply)))
        return reply

    first = reply_to([0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    assert asked == ["seed", "c0", "c1", "c2", "c3", "c4", "c5"]
    assert reply_to([9.0, 8.0, 7.0, 6.0, 5.0, 4.0]) == first


def test_what_a_screen_dropped_is_learned_from_too():
    train = (Case("t", 1),)
    dropped = Verdict("discard", "screened out", numbers={"screen_gain": -0.1})
    points = [BOWL.draw(random.Random(n)) for n in range(6)]
    past = [closed(n, Proposal(BOWL.edits(p)), None, dropped) for n, p in enumerate(points)]
    now = brief(6, past, "x = 0.0\ny = 0.0\n", train, "c.toml")
    asked: list[str] = []
    while isinstance(reply := ask(Numeric(BOWL, (0.0, 0.0)), now), Ask):
        asked.append(reply.candidate)
        now = replace(now, answers=(*now.answers, ProposerSuite()._answer(reply)))
    assert isinstance(reply, Proposal)
    assert asked == ["seed", "c0", "c1", "c2", "c3", "c4", "c5"]


def test_few_points_are_drawn_at_random_and_nothing_is_asked_for_them():
    train = (Case("t", 1),)
    past = [judged(n, Proposal(BOWL.edits((float(n), 0.0))), 1.0) for n in range(3)]
    reply = ask(Numeric(BOWL, (9.0, 9.0)), brief(3, past, "x = 9.0\ny = 9.0\n", train, "c.toml"))
    assert isinstance(reply, Proposal)


@pytest.mark.slow
def test_a_draw_after_two_hundred_steps_is_quick():
    proposer = Numeric(MIXED, START)
    chance = random.Random(0)
    past = [
        judged(n, Proposal(MIXED.edits(MIXED.draw(chance))), chance.random()) for n in range(205)
    ]
    ask(proposer, brief(200, past[:200]))
    spent: list[float] = []
    for step in range(201, 206):
        began = time.process_time()
        ask(proposer, brief(step, past[:step]))
        spent.append(time.process_time() - began)
    assert min(spent) < 0.4


def quality(candidate: Candidate, case: Case) -> float:
    point = MIXED.read(candidate.texts)
    assert isinstance(point, tuple)
    fast = {"slow": 0.0, "fast": 0.3}.get(str(point[3]), 0.1)
    return 1 - abs(float(point[0]) - 0.8) / 2 - abs(float(point[1]) - 15) / 40 + fast


def make_plan(cases: Cases, width: int, steps: int = 16) -> tuple[Plan, ScriptedEvaluator]:
    def crash(job: Job) -> Failure | None:
        bad = int(job.candidate_id, 16) % 9 == 0
        return Failure("crash", "candidate", "it fell over") if bad else None

    runner = ScriptedEvaluator(quality=quality, fails=crash)
    plan = small_plan(runner, Numeric(MIXED, START))
    seed = Candidate({"config.yaml": CONFIG})
    rules = Rules({"config.yaml": Artifact("config.yaml")})
    plan = replace(plan, seed=seed, rules=rules, cases=cases, locate=locate, width=width)
    objective = Objective("score", constraints=(Constraint("score", "<", 1.29),))
    budget = replace(plan.budget, max_iterations=steps)
    return replace(plan, objective=objective, budget=budget), runner


SPLIT = Cases(tuple(Case(f"t{n}", n) for n in range(2)), tuple(Case(f"h{n}", n) for n in range(2)))


@pytest.mark.slow
@pytest.mark.parametrize(("cases", "width"), [(implicit_cases(), 1), (SPLIT, 1), (SPLIT, 3)])
def test_a_run_cut_anywhere_resumes_to_the_same_end(cases: Cases, width: int, tmp_path: Path):
    moments = Moments()
    plan, _ = make_plan(cases, width)
    folder, whole = asyncio.run(start(plan, Home1(tmp_path, moments), Watch((moments,))))
    assert whole.keeps >= 2
    points = [MIXED.meant(step.proposal) for step in whole.history]
    assert len(set(points)) == len(points)
    for sizes in moments.sizes[:: max(1, len(moments.sizes) // 12)]:
        part = cut(folder, sizes, tmp_path / "part")
        again, runner = make_plan(cases, width)
        _, state = asyncio.run(resume(again, part))
        assert state.settled() == whole.settled()
        assert max(runner.tries.values(), default=0) <= 1


def test_feedback_rollouts_are_run_once_and_the_deciding_cases_only_by_the_gate(tmp_path: Path):
    plan, runner = make_plan(SPLIT, 1, steps=8)
    asyncio.run(start(plan, Home(tmp_path)))
    assert max(runner.tries.values()) == 1
    feedback = {job.case_id for job in runner.log if job.purpose == "feedback"}
    deciding = {job.case_id for job in runner.log if job.purpose == "decide"}
    assert feedback == {"t0", "t1"}
    assert deciding == {"h0", "h1"}


def test_a_point_that_shares_values_with_a_kept_one_is_still_judged():
    space = Space(
        (
            Axis("c.toml", "x", Numbers(1, 4, whole=True)),
            Axis("c.toml", "y", Numbers(1, 4, whole=True)),
        )
    )

    def total(candidate: Candidate, case: Case) -> float:
        point = space.read(candidate.texts)
        assert isinstance(point, tuple)
        return sum(map(float, point))

    plan = small_plan(ScriptedEvaluator(quality=total), Numeric(space, (1, 1)))
    plan = replace(
        plan,
        seed=Candidate({"c.toml": "x = 1\ny = 1\n"}),
        rules=Rules({"c.toml": Artifact("c.toml")}),
        cases=implicit_cases(),
        objective=Objective(),
        locate=locate,
        width=5,
        budget=replace(plan.budget, max_iterations=40),
    )
    state = asyncio.run(sit(plan, MemoryJournal()))
    judged = [step for step in state.history if step.verdict.outcome in ("keep", "discard")]
    assert len(judged) == 15, "every point but the seed's"
    assert not [step for step in state.history if step.verdict.code in ("stale", "duplicate")]
    assert state.stopped is not None
    assert state.stopped.kind == "nothing left to propose"
