"""Which text a step edits: the incumbent, or a near miss that does better on some cases."""

from collections import Counter
from collections.abc import Mapping, Sequence

import pytest

from kept.core.proposal import ClosedStep, History, NearMiss, Proposal, Turn
from kept.core.schedules.round_robin import MOST, Pooling, RoundRobin, choose_parent
from kept.core.score import Evaluation, Tally
from kept.core.state import State
from kept.core.verdict import Verdict

MISS = Verdict("discard", "near", code="near miss")
CASES = [f"c{n}" for n in range(10)]


def state(*misses: Mapping[str, float], made_for: Sequence[str] = ()) -> State:
    """An incumbent that loses 1 on each case, and near misses that lose less on some."""
    bars = {case: Tally(2, 2.0, 2.0) for case in CASES}
    ids = made_for or ["seed"] * len(misses)
    closed = [
        ClosedStep(n, Turn("edit"), ids[n], f"c{n}", Proposal(()), (), MISS)
        for n in range(len(misses))
    ]
    return State(
        incumbent="seed",
        history=History(closed),
        next_step=len(closed),
        pool=tuple(NearMiss(n, 0.1, tuple(row.items())) for n, row in enumerate(misses)),
        evaluations={"seed": (Evaluation("seed", "screen", bars, {}, {}, 20),)},
    )


def drawn(made: State, times: int = 2000) -> Mapping[int | None, float]:
    counted = Counter(choose_parent(made._replace(next_step=n), 7) for n in range(times))
    return {step: n / times for step, n in counted.items()}


def test_a_near_miss_is_drawn_by_the_cases_on_which_it_is_the_best_of_all():
    first = {"c0": 0.0, "c3": 0.5}
    second = {"c3": 0.0, "c4": 1.0, "c0": 0.5}
    found = drawn(state(first, second))
    # the incumbent is the best on eight of ten, the others on one each
    assert found == pytest.approx({None: 0.8, 0: 0.1, 1: 0.1}, abs=0.03)


def test_the_incumbent_is_drawn_three_times_in_four_at_least():
    half = dict.fromkeys(CASES[:5], 0.0)
    found = drawn(state(half, {**half, "c5": 0.0}))
    assert found == pytest.approx({None: 1 - MOST, 0: MOST * 5 / 6, 1: MOST / 6}, abs=0.03)


def test_who_is_nowhere_better_or_was_made_for_another_text_is_not_built_on():
    assert drawn(state(dict.fromkeys(CASES, 1.0)), 50) == {None: 1.0}
    assert drawn(state(dict.fromkeys(CASES, 0.0), made_for=["older"]), 50) == {None: 1.0}
    assert drawn(state({}), 50) == {None: 1.0}
    unknown = state(dict.fromkeys(CASES, 0.0))._replace(evaluations={})
    assert drawn(unknown, 50) == {None: 1.0}


def test_only_who_edits_what_it_is_given_gets_a_parent_and_only_where_there_is_a_pool():
    made = state(dict.fromkeys(CASES, 0.0))

    def parents(pooling: Pooling) -> set[int | None]:
        found = (pooling.next(made._replace(next_step=n)) for n in range(40))
        return {turn.parent for turn in found if isinstance(turn, Turn)}

    builder = frozenset({"edit"})
    assert parents(Pooling(RoundRobin(("edit",)), 9.0, 9, builders=builder)) == {None, 0}
    assert parents(Pooling(RoundRobin(("prune",)), 9.0, 9, builders=builder)) == {None}
    assert parents(Pooling(RoundRobin(("edit",)), 9.0, 9, builders=builder, pools=False)) == {None}
