"""A plain function as proposer: whose thread it is called in, and what it is given."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from typing import cast

import pytest

from kept.core.artifact import Candidate
from kept.core.edit import Write
from kept.core.proposal import Brief, Parent, Proposal
from kept.core.rollout import Failure
from kept.core.verdict import Verdict
from kept.proposers.function import QUICK, FunctionProposer
from tests.proposers.briefs import ask, close, make_brief

BRIEF = make_brief({"text": "seed"})


def threads_of(work: Callable[[], None], calls: int) -> list[bool]:
    """Whether each call was made in the thread of the event loop."""
    here: list[bool] = []

    def propose(brief: Brief) -> None:
        here.append(threading.current_thread() is threading.main_thread())
        work()

    proposer = FunctionProposer(propose)
    for _ in range(calls):
        ask(proposer, BRIEF)
    return here


def test_a_quick_function_is_called_in_the_thread_of_the_event_loop_after_its_first_call():
    assert threads_of(lambda: None, 3) == [False, True, True]


@pytest.mark.parametrize("how", ["waits", "computes"])
def test_a_function_that_was_slow_once_is_called_in_threads_from_then_on(how: str):
    calls: list[int] = []

    def work() -> None:
        calls.append(1)
        if len(calls) == 2:
            time.sleep(2 * QUICK) if how == "waits" else spin(2 * QUICK)

    assert threads_of(work, 4) == [False, True, False, False]


def spin(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


@contextmanager
def crowded() -> Generator[None]:
    """One processor for us and for others that never rest."""
    mine = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(mine)})
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(4)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()
        os.sched_setaffinity(0, mine)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells who waited")
def test_a_function_that_others_kept_from_the_processor_is_not_taken_for_a_slow_one():
    def stays() -> bool:
        took: list[float] = []

        def work() -> None:
            began = time.perf_counter()
            spin(QUICK / 2 if took else 0.0)
            took.append(time.perf_counter() - began)

        here = threads_of(work, 20)
        assert max(took[:-1]) > QUICK, "nobody kept it from the processor, so this shows nothing"
        return here[-1]

    with crowded():
        # now and then the kernel has a thread wait for itself, which nobody could tell apart
        assert any(stays() for _ in range(5))


def test_what_a_near_miss_is_held_against_is_the_function_s_own_too():
    near, ground = Candidate({"text": "near"}), Candidate({"text": "ground"})
    past = close(make_brief({"text": "x"}), Proposal(()), Verdict("discard", "worse"))
    brief = replace(make_brief({"text": "x"}), incumbent=near, parent=Parent(past, ground))

    def spoil(seen: Brief) -> None:
        for one in (seen.incumbent, seen.ground):
            cast("dict[str, str]", one.texts)["text"] += " spoilt"

    ask(FunctionProposer(spoil), brief)
    assert (near.text, ground.text) == ("near", "ground")


def test_a_candidate_is_what_its_texts_are_and_what_it_shares_is_left_alone():
    brief = make_brief({"a.md": "one\n", "b.md": "two\n"})

    def changed(brief: Brief) -> Candidate:
        return Candidate({**brief.incumbent.texts, "b.md": "three\n"})

    reply = ask(FunctionProposer(changed), brief)
    assert isinstance(reply, Proposal)
    assert reply.edits == (Write("b.md", "three\n"),)


def test_a_function_that_returns_the_incumbent_proposes_that_nothing_changes():
    def same(brief: Brief) -> Candidate:
        return brief.incumbent

    reply = ask(FunctionProposer(same), make_brief({"a.md": "one\n"}))
    assert isinstance(reply, Proposal)
    assert reply.edits == (Write("a.md", "one\n"),)


def test_what_is_no_proposal_is_told_with_what_to_return():
    def number(brief: Brief) -> int:
        return 7

    reply = ask(FunctionProposer(number), make_brief({"a.md": "one\n"}))
    assert isinstance(reply, Failure)
    assert reply.message.endswith(
        "it returned 7: not a text such as `brief.incumbent.text + …`, texts by name, a Candidate "
        "or a Proposal"
    )


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ("one text", "it returned one text, and there are several: return a mapping of `a`, `b`"),
        (Candidate({"a": "x"}), "the Candidate that it returned has no `b`: no file can be taken"),
        (Candidate({"a": "", "b": "", "c": ""}, {"p.png": "0"}), "has other blobs: only texts can"),
    ],
)
def test_what_cannot_be_taken_is_told_by_what_is_wrong_with_it(answer: object, message: str):
    def propose(brief: Brief) -> object:
        return answer

    reply = ask(FunctionProposer(propose), make_brief({"a": "one\n", "b": "two\n"}))
    assert isinstance(reply, Failure)
    assert message in reply.message
