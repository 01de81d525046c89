"""What a user's function may do to us, and must not."""

import asyncio
import sys
from collections.abc import Callable

import pytest

from kept.core.artifact import Candidate
from kept.core.case import Case
from kept.core.rollout import Failure, Job, Rollout
from kept.engine.scope import JournalScope
from kept.runners.function import FunctionRunner
from kept.testing import MemoryJournal

CANDIDATE = Candidate({"text": "x"})
JOB = Job(CANDIDATE.id, "case", 0, "decide")


def rolled(function: Callable[..., object], timeout: float | None = None) -> Rollout | Failure:
    async def once() -> Rollout | Failure:
        runner = FunctionRunner(function, "score", 1, timeout)
        scope = JournalScope(MemoryJournal(), JOB)
        try:
            return await asyncio.wait_for(runner.run(JOB, CANDIDATE, Case("case"), scope), 10)
        finally:
            await runner.close()

    return asyncio.run(once())


def next_of_nothing(candidate: Candidate) -> float:
    return next(iter([]))


def leaves(candidate: Candidate) -> float:
    sys.exit("usage: evaluate FILE")


async def leaves_async(candidate: Candidate) -> float:
    return leaves(candidate)


async def cancels_itself(candidate: Candidate) -> float:
    inner = asyncio.ensure_future(asyncio.sleep(60))
    inner.cancel()
    await inner
    return 0.5


@pytest.mark.parametrize("function", [next_of_nothing, leaves, leaves_async, cancels_itself])
@pytest.mark.parametrize("timeout", [None, 60.0])
def test_whatever_a_function_raises_is_a_failure_of_the_candidate(
    function: Callable[..., object], timeout: float | None
):
    failure = rolled(function, timeout)
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.blame) == ("crash", "candidate")


@pytest.mark.parametrize("answer", [10**400, {"score": 10**400}, "0.5", None, {"score": None}])
def test_an_answer_that_is_no_measure_is_a_broken_harness(answer: object):
    def odd(candidate: Candidate) -> object:
        return answer

    failure = rolled(odd)
    assert isinstance(failure, Failure)
    assert failure.kind == "harness"
