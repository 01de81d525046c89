"""Numeric search in phases: a study for each, begun where the incumbent stands, and on record."""

import random
from collections.abc import Mapping
from dataclasses import replace
from math import erf, exp, pi, sqrt
from typing import Any, cast

import pytest

from kept.core.artifact import Candidate
from kept.core.case import Case
from kept.core.edit import SetValue, Write
from kept.core.ports import Proposer
from kept.core.proposal import Ask, Brief, ClosedStep, History, Proposal, Skip, Turn, derive_seed
from kept.core.verdict import Verdict
from kept.proposers.numeric.search import Measured, Numeric, Past
from kept.proposers.numeric.space import Axis, Choices, Numbers, Point, Space
from kept.proposers.numeric.tpe import Estimator, Told
from kept.testing import ProposerSuite
from tests.proposers.briefs import ask, make_brief

LINE = Space((Axis("agent.yaml", "model.temperature", Numbers(0.0, 1.0)),))
GRID = Space(
    (
        Axis("agent.yaml", "model.temperature", Numbers(0.0, 0.5, step=0.5)),
        Axis("agent.yaml", "top_k", Numbers(1, 3, whole=True)),
    )
)
TEXTS = {"agent.yaml": "model: {temperature: 0.5}\ntop_k: 1\n", "prompt.md": "Be brief.\n"}
TRAIN = (Case("a", 1), Case("b", 2))


def brief_of(step: int, past: list[ClosedStep], cycle: int = 1, number: int = 0) -> Brief:
    phase = f"c{cycle}/numeric"
    base = make_brief(TEXTS, step, past, TRAIN)
    return replace(
        base,
        turn=Turn("numeric", phase, number),
        seed=derive_seed(0, phase, step),
        history=History(past),
    )


def tried(
    step: int,
    point: Point,
    train: float,
    *,
    space: Space = LINE,
    cycle: int = 1,
    keep: bool = False,
) -> ClosedStep:
    """A step that a rule judged by the train cases alone."""
    numbers = {"train_before": 0.5, "train": train}
    verdict = Verdict("keep" if keep else "discard", "", numbers=numbers)
    turn = Turn("numeric", f"c{cycle}/numeric")
    return ClosedStep(step, turn, "seed", f"c{step}", Proposal(space.edits(point)), (), verdict)


def rewritten(step: int, cycle: int = 1) -> ClosedStep:
    """A keep of the textual phase."""
    proposal = Proposal((Write("prompt.md", "Be kind.\n"),))
    turn = Turn("critique", f"c{cycle}/textual")
    return ClosedStep(step, turn, "seed", f"c{step}", proposal, (), Verdict("keep", ""))


def phase(
    space: Space, past: list[ClosedStep], cycle: int, trials: int = 99
) -> tuple[list[Point], Skip | None]:
    """The points of a phase in which nothing is kept, and how it ended; `past` grows by it."""
    read = space.read(TEXTS)
    assert isinstance(read, tuple)
    proposer = Numeric(space, read, startup=4)
    found: list[Point] = []
    for number in range(trials):
        reply = ask(proposer, brief_of(len(past), past, cycle, number))
        if isinstance(reply, Skip):
            return found, reply
        assert isinstance(reply, Proposal)
        point = space.meant(reply)
        assert point is not None
        found.append(point)
        past.append(
            tried(len(past), point, random.Random(number).random(), cycle=cycle, space=space)
        )
    return found, None


class TestNumericInPhases(ProposerSuite):
    """By the rules of every proposer, told by verdicts and with an end in sight."""

    steps = 8

    def make_proposer(self) -> Proposer:
        return Numeric(LINE, (0.5,), startup=4, eps=1e-6)

    def incumbent(self) -> Candidate:
        return Candidate(TEXTS)

    def brief(self, step: int = 0) -> Brief:
        brief = super().brief(step)
        return replace(brief, turn=Turn("numeric", "c2/numeric", step))

    def closed(self, step: int) -> tuple[ClosedStep, ...]:
        chance = random.Random(1)
        return tuple(tried(n, LINE.draw(chance), chance.random(), cycle=2) for n in range(step))


def test_a_later_phase_does_not_try_the_points_of_an_earlier_one_again():
    """Bug 7 of the original: the same seed in every phase drew the same points."""
    past: list[ClosedStep] = []
    first, _ = phase(LINE, past, 1, 6)
    past.append(rewritten(len(past)))
    second, _ = phase(LINE, past, 2, 6)
    assert not set(first) & set(second)


def test_while_no_text_changes_no_phase_tries_a_point_twice_and_then_they_are_free_again():
    """Bug 7 of the original: what was measured was measured again."""
    past: list[ClosedStep] = []
    first, end = phase(GRID, past, 1, 3)
    assert end is None
    second, end = phase(GRID, past, 2)
    assert isinstance(end, Skip)
    assert (end.ends, end.exhausted) == ("exhausted", False), "for this phase, and not for good"
    points = {*GRID.all()}
    assert sorted((*first, *second)) == sorted(points - {(0.5, 1)})
    past.append(rewritten(len(past)))
    third, end = phase(GRID, past, 3)
    assert isinstance(end, Skip)
    assert {*third} == points - {(0.5, 1)}


def test_every_phase_warms_up_by_itself():
    past: list[ClosedStep] = []
    for cycle in (1, 2):
        phase(LINE, past, cycle, 5)
    proposer = Numeric(LINE, (0.5,), startup=4)
    third = ask(proposer, brief_of(len(past), past, 3))
    assert isinstance(third, Proposal)
    assert third.about["axis_marginals"] is None
    phase(LINE, past, 3, 3)
    later = ask(proposer, brief_of(len(past), past, 3, 3))
    assert isinstance(later, Proposal)
    assert later.about["axis_marginals"] is not None


def test_the_study_begins_with_the_incumbents_own_point_and_asks_for_nothing_more():
    past = [tried(n, (n / 10,), n / 7) for n in range(4)]
    told = [*Past(LINE, (0.5,), "numeric", brief_of(4, past)).measured()]
    assert told[0] == Measured((0.5,), "seed", train=0.5)
    assert [(row.point, row.train) for row in told[1:]] == [((n / 10,), n / 7) for n in range(4)]
    assert isinstance(ask(Numeric(LINE, (0.5,), startup=4), brief_of(4, past)), Proposal)


def test_the_noise_of_a_train_loss_is_that_of_its_sweeps_mean():
    row = tried(0, (0.1,), 0.3)
    for more, noise in (
        ({}, None),
        ({"train_std": 0.2}, 0.2),
        ({"train_std": 0.2, "repeats": 4.0}, 0.1),
    ):
        verdict = replace(row.verdict, numbers={**row.verdict.numbers, **more})
        past = Past(LINE, (0.5,), "numeric", brief_of(1, [replace(row, verdict=verdict)]))
        assert [one.noise for one in past.measured()] == [None, noise]


def test_where_a_verdict_has_no_train_loss_the_train_cases_are_run():
    rows = [tried(n, (n / 10,), n / 7) for n in range(4)]
    bare = replace(rows[2], loss=0.25, verdict=Verdict("discard", ""))
    wanted = ask(Numeric(LINE, (0.5,), startup=4), brief_of(4, [*rows[:2], bare, rows[3]]))
    assert isinstance(wanted, Ask)
    assert (wanted.candidate, wanted.purpose) == ("c2", "feedback")


def test_the_train_loss_of_what_leads_is_that_of_the_verdict_it_was_kept_by():
    kept = tried(0, (0.2,), 0.125, keep=True)
    later = tried(2, (0.3,), 0.4, cycle=2)
    later = replace(later, incumbent="c0", verdict=Verdict("discard", "", numbers={"train": 0.4}))
    past = [kept, rewritten(1), later]
    first = next(Past(LINE, (0.5,), "numeric", brief_of(3, past, 2)).measured())
    assert first == Measured((0.2,), "c0", train=0.125)


@pytest.mark.parametrize(
    ("edit", "began"),
    [
        (SetValue("agent.yaml", "model.temperature", 0.9), (0.9,)),
        (Write("agent.yaml", "model: {temperature: 0.8}\n"), (0.8,)),
        (SetValue("agent.yaml", "top_k", 7), (0.5,)),
        (Write("prompt.md", "model: {temperature: 0.8}\n"), (0.5,)),
    ],
)
def test_a_phase_begins_where_the_keeps_of_all_proposers_have_led(edit: Any, began: Point):
    kept = replace(rewritten(0), proposal=Proposal((edit,)))
    past = [kept, tried(1, (0.1,), 0.3, cycle=2)]
    assert Past(LINE, (0.5,), "numeric", brief_of(2, past, 2)).began() == began
    refused = replace(kept, verdict=Verdict("discard", ""))
    assert Past(LINE, (0.5,), "numeric", brief_of(2, [refused], 2)).began() == (0.5,)


def test_a_candidate_that_failed_on_the_train_cases_is_told_as_the_worst():
    rows = [tried(n, (n / 10,), n / 7) for n in range(4)]
    crash = replace(rows[1], verdict=Verdict("crash", "it fell over"))
    broke = replace(rows[2], verdict=Verdict("discard", "", code="constraint"))
    told = [*Past(LINE, (0.5,), "numeric", brief_of(4, [rows[0], crash, broke])).measured()]
    assert [row.failed for row in told] == [False, False, True, True]


def test_a_point_of_the_warm_up_is_on_record_without_densities():
    reply = ask(Numeric(GRID, (0.5, 1), startup=4), brief_of(0, [], 2))
    assert isinstance(reply, Proposal)
    point = GRID.meant(reply)
    assert point is not None
    assert reply.about == {
        "kind": "numeric",
        "numeric_study_id": "numeric-phase-2",
        "params": {"model.temperature": point[0], "top_k": point[1]},
        "tpe_quantile": None,
        "candidates_evaluated": None,
        "selected_candidate_score": None,
        "axis_marginals": None,
        "observations": 0,
    }


def bell(x: float, middle: float, width: float) -> float:
    """The density of a normal, cut off outside 0 … 1."""

    def below(at: float) -> float:
        return (1 + erf((at - middle) / width / sqrt(2))) / 2

    whole = exp(-(((x - middle) / width) ** 2) / 2) / (width * sqrt(2 * pi))
    return whole / (below(1.0) - below(0.0))


def test_the_densities_on_record_are_those_worked_by_hand():
    """Also says so when the library comes to split its trials, or to estimate, another way."""
    losses = {0.1: 0.1, 0.2: 0.2, 0.6: 0.3, 0.9: 0.4}
    told = [Told((x,), loss) for x, loss in losses.items()]
    x = 0.25
    # of four the best is good: a tenth, rounded up. Its bell reaches to the farther end, for
    # there is no other; the prior is as wide as the range. Both weigh the same
    good = (bell(x, 0.1, 0.9) + bell(x, 0.5, 1.0)) / 2
    # each of the others reaches to its farther neighbour, the outer ones to their only one
    others = ((0.2, 0.4), (0.6, 0.4), (0.9, 0.3), (0.5, 1.0))
    bad = sum(bell(x, middle, width) for middle, width in others) / 4
    shown = Estimator(LINE, 4).explain(told, (x,))
    assert shown is not None
    assert (shown.quantile, shown.candidates) == (0.25, 24)
    assert shown.score == pytest.approx(good / bad, rel=1e-5)
    (row,) = shown.marginals.values()
    assert row["value"] == x
    assert row["good_density"] == pytest.approx(good, rel=1e-5)
    assert row["bad_density"] == pytest.approx(bad, rel=1e-5)


def test_what_is_drawn_is_the_densest_in_good_points_of_all_that_were_looked_at():
    """So the densities on record are those by which the library chose."""
    chance = random.Random(3)
    points = [LINE.draw(chance) for _ in range(20)]
    told = [Told(point, (float(point[0]) - 0.3) ** 2) for point in points]
    estimator = Estimator(LINE, 4)
    drawn = [next(estimator.draw(told, seed)) for seed in range(20)]
    any_point = [LINE.draw(chance) for _ in range(20)]

    def mean(points: list[Point]) -> float:
        scores = [estimator.explain(told, point) for point in points]
        return sum(shown.score for shown in scores if shown) / len(points)

    assert mean(drawn) > 1.5 * mean(any_point)


def test_a_density_along_one_axis_is_that_of_all_with_the_others_left_open():
    space = Space(
        (
            Axis("c", "x", Numbers(0.0, 1.0)),
            Axis("c", "mode", Choices(("slow", "fast", True))),
            Axis("c", "still", Numbers(3.0, 3.0)),
        )
    )
    chance = random.Random(0)
    told = [Told(space.draw(chance), chance.random()) for _ in range(12)]
    estimator = Estimator(space, 4)

    def marginals(x: float, mode: Any) -> Mapping[str, Mapping[str, Any]]:
        shown = estimator.explain(told, (x, mode, 3.0))
        assert shown is not None
        return shown.marginals

    modes = [marginals(0.5, mode)["mode"]["good_density"] for mode in ("slow", "fast", True)]
    assert sum(modes) == pytest.approx(1.0, rel=1e-4)
    across = [marginals((n + 0.5) / 200, "slow")["x"]["bad_density"] for n in range(200)]
    assert sum(across) / 200 == pytest.approx(1.0, rel=1e-3)
    assert "still" not in marginals(0.5, "slow"), "there is nothing to choose"


def test_densities_do_not_depend_on_what_the_estimator_was_told_before():
    told = [Told((n / 10,), n / 10) for n in range(8)]
    used = Estimator(LINE, 4)
    used.explain([*told[:4], Told((0.99,), 0.0)], (0.4,))
    assert used.explain(told, (0.4,)) == Estimator(LINE, 4).explain(told, (0.4,))
    assert used.explain(told[:3], (0.4,)) is None, "these are still the warm-up"


def test_a_phase_is_over_when_nothing_more_is_to_be_gained():
    flat = [tried(n, (n / 10,), 0.5 + n * 1e-7) for n in range(9)]
    reply = ask(Numeric(LINE, (0.5,), startup=4, eps=1e-3), brief_of(9, flat))
    assert isinstance(reply, Skip)
    assert reply.ends == "converged"
    assert "below 0.001" in reply.why
    assert reply.about["numeric_study_id"] == "numeric-phase-1"
    assert "gaussian process" in cast("str", reply.about["surrogate"])
    assert 0 <= cast("float", reply.about["expected_gain"]) < 1e-3
    for eps in (None, 1e-9):
        again = ask(Numeric(LINE, (0.5,), startup=4, eps=eps), brief_of(9, flat))
        assert isinstance(again, Proposal), eps
    warm = ask(Numeric(LINE, (0.5,), startup=4, eps=1e-3), brief_of(2, flat[:2]))
    assert isinstance(warm, Proposal), "not before it is warm"


def test_it_goes_on_while_there_is_something_to_be_gained_and_says_how_much():
    slope = [tried(n, (n / 10,), 0.9 - n / 20) for n in range(5)]
    reply = ask(Numeric(LINE, (0.5,), startup=4, eps=1e-3), brief_of(5, slope))
    assert isinstance(reply, Proposal)
    assert cast("float", reply.about["expected_gain"]) > 0.05
