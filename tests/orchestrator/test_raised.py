"""A run that a limit ended, gone on with by a higher one: nothing that was heard is asked again."""

from dataclasses import replace

import pytest

from kept.orchestrator.budget import enough, is_raise
from kept.orchestrator.events import story
from kept.orchestrator.record import Limits
from kept.testing import MemoryJournal
from tests.orchestrator.play import (
    REPORT,
    Came,
    Play,
    complete,
    delegate,
    done,
    finished,
    kit_of,
    plan,
    replies_in,
    run_agent,
    timeless,
    use,
    with_limits,
    write,
)


def _managed(user: str, spoken: int) -> str:
    """By what has come of the task so far."""
    if "There is no plan yet" in user:
        return plan("report.md")
    left = [name for name in "abc" if f"## Worker {name}," not in user]
    return delegate(left[0]) if left else complete()


def _play() -> Play:
    play = Play(
        [],
        {
            "a": [write(content="# Draft\n\nSales were 12.\n"), done("a")],
            "b": [use("arithmetic", expression="15 / 12"), use("file_list"), done("b")],
            "c": [write(), done("c")],
        },
        usd=0.01,
    )
    play._managed = _managed  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
    return play


def _run(
    limits: Limits, raised: Limits | None = None, journal: MemoryJournal | None = None
) -> tuple[Came, Play]:
    play = _play()
    kit = replace(kit_of(play, limits=limits), raised=raised)
    return finished(run_agent(kit, journal=journal)), play


def _reopened(came: Came, cut: int | None = None) -> MemoryJournal:
    journal = came.journal.reopened(len(came.journal.records) if cut is None else cut)
    journal.tail(0)
    return journal


@pytest.mark.parametrize(
    ("axis", "low", "high", "reason"),
    [
        ("loops", 2, 20, "max_loops"),
        ("workers", 1, 20, "max_total_workers"),
        ("tool_calls", 1, 20, "max_tool_calls"),
        ("tokens", 5_000, 900_000, "max_total_tokens"),
        ("usd", 0.06, 2.0, "max_usd"),
        ("usd", 0.06, None, "max_usd"),
    ],
)
def test_a_run_that_a_limit_ended_goes_on_with_a_higher_one(
    axis: str, low: float, high: float | None, reason: str
) -> None:
    limits, more = with_limits(**{"loops": 20, axis: low}), with_limits(**{"loops": 20, axis: high})
    first, _ = _run(limits)
    assert (first.record.status, first.record.reason) == ("partial", reason)
    again, after = _run(limits, more, _reopened(first))
    assert again.record.status == "complete", again.record.reason
    assert again.files == {"report.md": REPORT.encode()}
    asked = [who for who, _ in after.heard]
    assert asked[-3:] == ["c", "critic", "manager"]
    known = replies_in(first.journal.records)
    assert replies_in(again.journal.records) == known + len(asked), "nothing was asked twice"
    assert again.record.limits == more
    (told,) = (line for line in story(again.record) if line.startswith("goes on with more"))
    assert reason in told


@pytest.mark.parametrize(
    ("axis", "low"),
    [("usd", 0.0001), ("tokens", 7), ("wall_seconds", 1e-9), ("loops", 1)],
)
def test_the_limit_that_is_offered_is_enough_to_go_on(axis: str, low: float) -> None:
    limits = with_limits(**{"loops": 20, axis: low})
    came, _ = _run(limits)
    assert came.record.status == "partial"
    offered = replace(limits, **{axis: enough(came.record, axis)})
    again, play = _run(limits, offered, _reopened(came))
    assert play.heard, again.record.rejections


def test_the_wall_time_can_be_raised_too() -> None:
    limits = with_limits(wall_seconds=1e-9, loops=20)
    first, _ = _run(limits)
    assert first.record.reason == "max_wall_time"
    again, _ = _run(limits, replace(limits, wall_seconds=3600), _reopened(first))
    assert again.record.status == "complete"


def test_limits_that_are_what_they_were_end_it_as_they_did() -> None:
    limits = with_limits(loops=2)
    first, _ = _run(limits)
    for raised in (None, limits, with_limits(loops=2, tokens=10**9)):
        again, heard = _run(limits, raised, _reopened(first))
        assert again.record.reason == "max_loops" and not heard.heard
        assert timeless(again.record) == timeless(first.record)


def test_a_run_that_went_on_is_cut_anywhere_and_comes_to_the_same_end() -> None:
    limits, more = with_limits(loops=2), with_limits(loops=4)
    first, _ = _run(limits)
    then, _ = _run(limits, more, _reopened(first))
    assert then.record.reason == "max_loops"
    whole, play = _run(limits, with_limits(loops=20), _reopened(then))
    assert whole.record.status == "complete" and len(whole.record.raised) == 2
    records = list(whole.journal.records)
    for cut in range(len(first.journal.records), len(records)):
        again, heard = _run(limits, with_limits(loops=20), _reopened(whole, cut))
        assert again.files == whole.files and again.record.status == "complete"
        if cut > len(then.journal.records):
            assert timeless(again.record) == timeless(whole.record)
            assert len(heard.heard) == replies_in(records) - replies_in(records[:cut])
    ended, heard = _run(limits, None, _reopened(whole))
    assert ended.record.status == "complete" and not heard.heard, "it needs no flag to be read"
    assert play.heard


@pytest.mark.parametrize(
    ("after", "is_one"),
    [
        (with_limits(loops=200), True),
        (with_limits(), True),
        (with_limits(loops=200, tokens=5), False),
        (with_limits(loops=200, repairs=5), False),
        (with_limits(usd=5.0), False),
    ],
)
def test_only_more_of_an_axis_is_a_raise(after: Limits, is_one: bool) -> None:
    assert is_raise(Limits(), after) is is_one
    assert is_raise(with_limits(usd=1.0), Limits()), "no limit is more than any"
