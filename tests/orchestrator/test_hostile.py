"""Deliverables that are made to break the checks that read them."""

import asyncio
import time

import pytest

from kept.orchestrator.checks import chain as checks
from kept.orchestrator.checks.base import Passed, Rejected
from kept.orchestrator.checks.chain import Pure, chain, judge
from kept.orchestrator.checks.syntax import syntax
from tests.orchestrator.play import (
    Came,
    Play,
    complete,
    delegate,
    done,
    finished,
    kit_of,
    plan,
    run_agent,
    timeless,
    use,
    write,
)
from tests.orchestrator.submissions import NoScope, scored, submission

pytestmark = pytest.mark.slow

DEEP = "a: " + "[" * 60_000 + "]" * 60_000
TOLD = "data.yaml:1: no YAML that can be read: it is nested more than 100 levels deep"


def _play() -> Play:
    workers = {
        "w1": [write("output/data.yaml", DEEP), done("w1")],
        "w2": [write("output/data.yaml", "a: [1]\n"), done("w2")],
    }
    manager = [plan("data.yaml"), delegate("w1"), complete(), delegate("w2"), complete()]
    return Play(manager, workers)


def _run(came: Came | None = None, cut: int = 0) -> Came:
    journal = None
    if came is not None:
        journal = came.journal.reopened(cut)
        journal.tail(0)
    return finished(run_agent(kit_of(_play()), "Write data.yaml", journal=journal))


def test_a_deliverable_that_would_end_the_process_is_reported_and_so_it_is_after_a_resume():
    whole = _run()
    assert whole.record.status == "complete"
    assert [TOLD in one.reason for one in whole.record.rejections] == [True]
    records = len(whole.journal.records)
    for cut in (records // 2, records - 1):
        assert timeless(_run(whole, cut).record) == timeless(whole.record)


@pytest.mark.parametrize("given", [{"\ud800": 1}, {"a": {"\ud83d": "x"}}, {"a": 10**400}])
def test_what_no_schema_can_be_held_against_is_an_answer_to_a_tool_and_no_crash(
    given: dict[str, object],
):
    workers = {"w1": [use("file_write", path="output/a.md", **given), write(), done("w1")]}
    play = Play([plan("report.md"), delegate("w1"), complete()], workers)
    assert finished(run_agent(kit_of(play), "Write it")).record.status == "complete"


def test_a_confidence_of_four_hundred_digits_is_an_answer_that_cannot_be_used():
    workers = {"w1": [write(), done("w1", confidence=10**400), done("w1")]}
    play = Play([plan("report.md"), delegate("w1"), complete()], workers)
    assert finished(run_agent(kit_of(play), "Write it")).record.status == "complete"


def test_a_check_in_another_process_says_what_it_says_in_this_one(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(checks, "SMALL_BYTES", 0)
    for files in ({"a.md": b"# Fine\n\nwords\n"}, {"a.json": b"{"}, {"a.csv": b"a,b\n1\n"}):
        given = submission(files=files, critiques=scored(0.9))
        for check in chain():
            if isinstance(check, Pure):
                apart = asyncio.run(check(given, NoScope()))
                assert apart == check.judge(given), check.name


def test_a_check_that_is_held_up_refuses_in_time(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(checks, "MOST_SECONDS", 1.0)
    # twelve megabytes of words take seconds
    given = submission(files={"a.md": b"<a " * 4_000_000}, critiques=scored(0.9))
    began = time.monotonic()
    judged = asyncio.run(judge(given, NoScope(), chain()))
    assert isinstance(judged.refusal, Rejected)
    assert "takes more than 1 seconds" in judged.refusal.reason
    assert time.monotonic() - began < 60
    # and the next one is none the worse for it
    fine = submission(files={"a.txt": b"word " * 10_000})
    assert asyncio.run(Pure("syntax", syntax)(fine, NoScope())) == Passed()
