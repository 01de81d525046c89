"""Managers in the place of workers, beside others: cut behind everything, and resumed."""

import re
from collections.abc import Sequence

import pytest

from kept.testing import MemoryJournal
from kept.testing.journal import CallRecord
from tests.orchestrator.play import (
    Came,
    Play,
    complete,
    done,
    finished,
    kit_of,
    plan,
    replies_in,
    run_agent,
    say,
    timeless,
    use,
    with_limits,
    write,
)

SLOW = [use("arithmetic", expression=f"{n} + 1") for n in range(4)]
SENT = {
    "the whole": ("m1", "w1", "m2"),
    "by m1": ("x1", "y1"),
    "by m2": ("m3", "x2"),
    "by m3": ("x3",),
}
"""Who is sent by the manager of which task; names with an m manage others."""


def _sent(names: Sequence[str]) -> str:
    rows = [
        {
            "worker_id": name,
            "subtask_id": "s1",
            "instructions": f"by {name}",
            "as_submanager": name.startswith("m"),
        }
        for name in names
    ]
    return say({"decision": "delegate", "delegations": rows})


def _managed(user: str, spoken: int) -> str:
    """By what has come of the task so far."""
    task = next(name for name in reversed(SENT) if f"\n{name}\n" in user)
    if "There is no plan yet" in user:
        return plan("report.md", description=task)
    return complete() if "## Worker" in user else _sent(SENT[task])


def _play() -> Play:
    """Several write to `same`; none reads what a neighbour may or may not have written."""
    play = Play(
        [],
        {
            "x1": [write("same", "x1"), use("file_read", path="same"), done("x1")],
            "y1": [*SLOW, write("output/report.md"), done("y1")],
            "w1": [*SLOW[:2], write("same", "w1"), done("w1")],
            "x2": [write("two"), use("file_read", path="two"), done("x2")],
            "x3": [*SLOW[:1], write("same", "x3"), use("file_read", path="same"), done("x3")],
        },
    )
    play._managed = _managed  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
    return play


def _run(journal: MemoryJournal | None = None, side_by_side: int = 3) -> tuple[Came, Play]:
    play = _play()
    kit = kit_of(play, limits=with_limits(parallel_workers=side_by_side), checks=[])
    return finished(run_agent(kit, "the whole\n", journal=journal)), play


def _reopened(records: Sequence[object]) -> MemoryJournal:
    journal = MemoryJournal(list(records))  # pyright: ignore[reportArgumentType]
    journal.tail(0)
    return journal


@pytest.mark.slow
@pytest.mark.parametrize(("side_by_side", "step"), [(1, 9), (2, 7), (3, 4)])
def test_managers_below_managers_resume_to_the_same_end_and_repeat_no_call(
    side_by_side: int, step: int
) -> None:
    whole, play = _run(side_by_side=side_by_side)
    assert whole.record.status == "complete"
    records = list(whole.journal.records)
    assert replies_in(records) == len(play.heard)
    for cut in range(0, len(records), step):
        again, heard = _run(_reopened(records[:cut]), side_by_side)
        known = replies_in(records[:cut])
        assert len(heard.heard) == len(play.heard) - known, f"cut behind {records[cut - 1]}"
        assert timeless(again.record) == timeless(whole.record)
        assert again.files == whole.files


@pytest.mark.parametrize("lost", ["m1", "w1", "m2", "m2/.*/m3", "m1/.*/y1"])
def test_what_one_of_them_had_not_done_changes_nothing_for_the_others(lost: str) -> None:
    """A kill leaves one far ahead of another: all that was written down is heard, and no more."""
    whole, play = _run()
    at = next(
        n
        for n, r in enumerate(whole.journal.records)
        if isinstance(r, CallRecord) and r.scope.endswith("turn-3")
    )
    branch = re.compile(rf"/workers/{lost}/")
    above = re.compile(r"/workers/(m1|m2)/(merged|critic)|/workers/m2/.*/m3/(merged|critic)")
    kept = [
        r
        for r in whole.journal.records[:at]
        if not (isinstance(r, CallRecord) and (branch.search(r.scope) or above.search(r.scope)))
    ]
    # a manager does not go on before those that it sent are back
    below = lost.split("/")[0]
    later = re.compile(rf"/workers/{below}/manages/turn-3")
    kept = [r for r in kept if not (isinstance(r, CallRecord) and later.search(r.scope))]
    again, heard = _run(_reopened(kept))
    assert len(heard.heard) == len(play.heard) - replies_in(kept)
    assert again.record.status == "complete"


def test_what_a_manager_below_is_told_does_not_depend_on_its_neighbours() -> None:
    _, play = _run()
    told = [text for _, text in play.heard if text.startswith("## Task\n\nthe whole\n\nby m2\n")]
    assert len(told) >= 3
    assert all("same (" not in text.split("## Workspace")[1] for text in told[:2])
    assert "two (" in told[2] and "same (2 bytes)" in told[2], "what its own workers wrote"


def test_what_was_made_below_joins_the_files_of_all() -> None:
    whole, play = _run()
    last = [text for who, text in play.heard if who == "manager"][-1]
    assert "* two (" in last and "* same (" in last
    assert set(whole.files) == {"report.md"}
    sent = {one.worker_id: one.written for one in whole.record.iterations[1].delegations}
    assert sent == {"m1": ("output/report.md", "same"), "w1": ("same",), "m2": ("same", "two")}


def test_critics_see_the_files_of_a_manager_below_as_it_left_them() -> None:
    _, play = _run()
    shown = [text for who, text in play.heard if who == "critic" and "by m1" in text]
    assert any("Sales were 12 in May" in text and "x1" in text for text in shown)
    assert not any("was deleted" in text for text in shown)
