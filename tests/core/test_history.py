"""The history of closed steps: found by number, by proposer, from either end."""

from hypothesis import given
from hypothesis import strategies as st

from kept.core.proposal import ClosedStep, History, Turn
from kept.core.verdict import Verdict

VERDICT = Verdict("discard", "worse")
NAMES = st.lists(st.sampled_from("abc"))


def steps_of(names: list[str]) -> list[ClosedStep]:
    return [
        ClosedStep(n, Turn(name, number=n), "seed", None, None, (), VERDICT)
        for n, name in enumerate(names)
    ]


def grown(steps: list[ClosedStep]) -> History:
    history = History()
    for step in steps:
        history = history.add(step)
    return history


@given(NAMES)
def test_history_grown_step_by_step_equals_one_made_at_once(names: list[str]) -> None:
    steps = steps_of(names)
    history = grown(steps)
    assert history == History(steps)
    assert list(history) == steps
    assert list(reversed(history)) == steps[::-1]
    assert [history[n] for n in range(len(history))] == steps
    for name in "abcd":
        own = [step for step in steps if step.turn.proposer == name]
        assert list(history.of(name)) == own
        assert list(reversed(history.of(name))) == own[::-1]
        assert len(history.of(name)) == len(own)
        assert history.of(name)[1:] == own[1:]


@given(NAMES, st.integers(0, 9))
def test_last_gives_the_newest_steps_oldest_first(names: list[str], n: int) -> None:
    steps = steps_of(names)
    assert grown(steps).last(n) == (steps[-n:] if n else [])


@given(NAMES, NAMES)
def test_a_history_never_sees_steps_that_were_added_later(one: list[str], two: list[str]) -> None:
    first = grown(steps_of(one))
    before = {name: list(first.of(name)) for name in "abc"}
    for tail in (two, two[::-1]):
        history = first
        for step in steps_of(tail):
            history = history.add(step)
    assert list(first) == steps_of(one)
    assert {name: list(first.of(name)) for name in "abc"} == before
