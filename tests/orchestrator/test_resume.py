"""Cut behind everything that was ever written, and resumed: no reply is asked for twice."""

from collections.abc import Sequence

import pytest

from kept.core.llm import ToolAnswer
from kept.orchestrator.record import Limits
from kept.testing import MemoryJournal
from kept.testing.journal import CallRecord
from tests.orchestrator.play import (
    REPORT,
    Came,
    Play,
    Says,
    complete,
    delegate,
    done,
    finished,
    kit_of,
    plan,
    refuse,
    replies_in,
    run_agent,
    timeless,
    use,
    with_limits,
    write,
)


def _busy() -> Play:
    """Two turns of workers side by side, garbage, a broken contract, refusals, a repair."""
    return Play(
        [
            ["hm", plan("report.md", "data.json")],
            delegate("a", "b", "c", "d", "e"),
            delegate("f"),
            complete(),
            complete(),
            "never asked",
            complete(),
        ],
        {
            "a": [write("notes/a"), use("file_read", path="notes/a"), done("a")],
            "b": [write("output/data.json", '{"may": 12}'), done("b")],
            "c": [use("arithmetic", expression="15 / 12"), "no JSON", done("c")],
            "d": [write("same", "d"), use("file_delete", path="same"), done("d")],
            "e": [write("same2", "e"), "no", "no"],
            "f": [write(), use("file_list"), done("f")],
            "repair-1": [write(content=REPORT + "\nMended.\n"), done("repair-1")],
        },
    )


def _run(journal: MemoryJournal | None = None, play: Play | None = None) -> tuple[Came, Play]:
    play = play or _busy()
    checks = [Says([refuse(), refuse()])]
    kit = kit_of(play, limits=with_limits(parallel_workers=2), checks=checks)
    return finished(run_agent(kit, inputs={"in.bin": b"\x00\xff"}, journal=journal)), play


def test_a_run_that_is_cut_behind_any_record_resumes_to_the_same_end_and_repeats_no_call() -> None:
    whole, play = _run()
    assert whole.record.status == "complete" and len(whole.record.repairs) == 1
    records = list(whole.journal.records)
    asked = len(play.heard)
    assert replies_in(records) == asked
    for cut in range(len(records)):
        journal = whole.journal.reopened(cut)
        journal.tail(0)
        again, heard = _run(journal)
        known = replies_in(records[:cut])
        assert len(heard.heard) == asked - known, f"cut behind {cut}: {records[cut - 1]}"
        assert again.files == whole.files
        assert timeless(again.record) == timeless(whole.record)


def test_a_tool_is_not_used_again_and_its_files_are_there_all_the_same() -> None:
    whole, _ = _run()
    records = whole.journal.records
    used = [
        n
        for n, r in enumerate(records)
        if isinstance(r, CallRecord) and isinstance(r.reply, ToolAnswer)
    ]
    journal = whole.journal.reopened(used[-1] + 1)
    journal.tail(0)
    before = journal.rollouts_size
    again, _ = _run(journal)
    fresh = journal.records[before:]
    assert not any(isinstance(r, CallRecord) and isinstance(r.reply, ToolAnswer) for r in fresh)
    assert again.files == whole.files


@pytest.mark.parametrize("tokens", [5_000, 8_000])
def test_a_run_that_its_budget_ended_resumes_to_the_same_end(tokens: int) -> None:
    def go(journal: MemoryJournal | None = None) -> tuple[Came, Play]:
        play = _busy()
        limits: Limits = with_limits(tokens=tokens)
        return finished(run_agent(kit_of(play, limits=limits), journal=journal)), play

    whole, play = go()
    assert whole.record.status == "partial"
    records = list(whole.journal.records)
    for cut in range(len(records)):
        journal = whole.journal.reopened(cut)
        journal.tail(0)
        again, heard = go(journal)
        assert len(heard.heard) == len(play.heard) - replies_in(records[:cut])
        assert timeless(again.record) == timeless(whole.record)


@pytest.mark.parametrize("side_by_side", [1, 2, 4])
def test_what_a_worker_does_anew_comes_behind_all_that_others_did_before(
    side_by_side: int,
) -> None:
    """A kill leaves one worker's changes in the journal, and another's first use still to come."""
    slow = [use("arithmetic", expression=f"{n} + 1") for n in range(4)]
    play = Play(
        [plan("report.md"), delegate("a", "b", "c"), complete()],
        {
            "a": [use("file_read", path="same"), write("same", "a"), write(), done("a")],
            "b": [*slow, write("same", "b"), done("b")],
            "c": [done("c")],
        },
    )
    kit = kit_of(play, limits=with_limits(parallel_workers=3))
    whole = finished(run_agent(kit))
    at = next(
        n
        for n, r in enumerate(whole.journal.records)
        if isinstance(r, CallRecord) and "/workers/b/critic" in r.scope
    )
    kept = [
        r
        for r in whole.journal.records[:at]
        if not (isinstance(r, CallRecord) and "/workers/a/" in r.scope)
    ]
    stamps = _stamps(kept)
    assert len(stamps) == 1, "that of b alone"
    journal = MemoryJournal(list(kept))
    journal.tail(0)
    again = finished(
        run_agent(kit_of(play, limits=with_limits(parallel_workers=side_by_side)), journal=journal)
    )
    fresh = [r for r in journal.records[len(kept) :] if isinstance(r, CallRecord)]
    read = next(r.reply for r in fresh if isinstance(r.reply, ToolAnswer))
    assert read.text == "b", "what b wrote is there for who reads it now"
    new = _stamps(fresh)
    assert new and min(new) > stamps[0], "and what is written now is written later"
    assert again.record.status == "complete"


def _stamps(records: Sequence[object]) -> list[int]:
    """Of changes of the shared files."""
    replies = [r.reply for r in records if isinstance(r, CallRecord)]
    return [one.stamp for one in replies if isinstance(one, ToolAnswer) and one.changes]
