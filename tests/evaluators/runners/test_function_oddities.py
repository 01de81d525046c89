"""What a user's function may do to us, and must not."""

import asyncio
import copy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

import kept
from kept.core.artifact import Candidate
from kept.core.case import Case
from kept.core.rollout import Failure, Job, Rollout
from kept.engine.replay import JournalScope
from kept.evaluators.runners.function import FunctionRunner
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
    assert (failure.kind, failure.blame) == ("exception", "candidate")


@pytest.mark.parametrize("answer", [10**400, {"score": 10**400}, "0.5", None, {"score": None}])
def test_an_answer_that_is_no_measure_is_a_broken_harness(answer: object):
    def odd(candidate: Candidate) -> object:
        return answer

    failure = rolled(odd)
    assert isinstance(failure, Failure)
    assert failure.kind == "harness"


def returning(answer: object) -> Callable[[Candidate], object]:
    def function(candidate: Candidate) -> object:
        return answer

    return function


class Mute:
    """What can neither be a number nor be shown, as a detached row of a database."""

    def __float__(self) -> float:
        raise RuntimeError("a tensor with two elements is no scalar")

    def __repr__(self) -> str:
        raise RuntimeError("the session is closed")


class MuteError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize("answer", [Mute(), {"score": Mute()}, (Mute(), 1)])
def test_an_answer_that_cannot_even_be_shown_is_a_broken_harness(answer: object):
    failure = rolled(returning(answer))
    assert isinstance(failure, Failure)
    assert failure.kind == "harness"
    assert "a Mute that cannot be shown" in failure.message


def test_information_that_cannot_be_shown_takes_no_score_away():
    rollout = rolled(returning((0.5, Mute())))
    assert isinstance(rollout, Rollout)
    assert rollout.trace[0].text == "a Mute that cannot be shown"


def test_an_exception_that_cannot_tell_of_itself_is_a_crash_all_the_same():
    def fails(candidate: Candidate) -> float:
        raise MuteError

    failure = rolled(fails)
    assert isinstance(failure, Failure)
    assert failure.message.startswith("MuteError: it cannot say what (")


def test_what_leaves_the_program_is_told_by_its_own_name_and_line():
    failure = rolled(leaves)
    assert isinstance(failure, Failure)
    assert failure.message.startswith("SystemExit: usage: evaluate FILE (")
    assert "test_function_oddities.py:" in failure.message


def test_the_measure_that_is_no_number_is_named():
    failure = rolled(returning({"score": 1.0, "note": "too long"}))
    assert isinstance(failure, Failure)
    assert failure.message == (
        "evaluate returned 'too long' as `note`, which is no number: notes go behind the metrics, "
        "as in (metrics, notes)"
    )


DATA = {"id": "a", "answer": 1.0, "messages": [{"role": "user"}]}


def consumes(candidate: Candidate, case: Any) -> float:
    case["messages"].clear()
    case["messages"].append(candidate.text)
    case["seen"] = True
    return case.pop("answer")


async def consumes_async(candidate: Candidate, case: Any) -> float:
    return consumes(candidate, case)


@pytest.mark.parametrize("function", [consumes, consumes_async])
@pytest.mark.parametrize("timeout", [None, 60.0])
def test_a_function_that_changes_its_case_changes_no_other_call(
    function: Callable[..., object], timeout: float | None
):
    case = Case("case", copy.deepcopy(DATA))

    async def thrice() -> list[Rollout | Failure]:
        runner = FunctionRunner(function, "score", 1, timeout)
        scope = JournalScope(MemoryJournal(), JOB)
        try:
            return [await runner.run(JOB, CANDIDATE, case, scope) for _ in range(3)]
        finally:
            await runner.close()

    told = asyncio.run(thrice())
    assert [one.metrics for one in told if isinstance(one, Rollout)] == [{"score": 1.0}] * 3
    assert case.data == DATA


def test_a_proposer_that_changes_the_cases_it_sees_spoils_no_rollout(tmp_path: Path):
    seen: list[Any] = []

    def hides(brief: kept.Brief) -> str:
        for case in brief.train:
            cast("Any", case.data).pop("answer", None)
        return f"text {brief.step}"

    def evaluate(candidate: Candidate, case: Any) -> float:
        seen.append(case)
        return case["answer"]

    cases = kept.Cases(train=(Case("t", dict(DATA)),), holdout=(Case("h", dict(DATA)),))
    kept.optimize("seed", evaluate, cases, proposers=[hides], budget=3, home=tmp_path)
    assert seen and all("answer" in case for case in seen)
    assert cases.train[0].data == DATA


def rewrites(candidate: Candidate, case: Any) -> float:
    texts = cast("dict[str, str]", candidate.texts)
    texts["text"] += " and more"
    return len(texts["text"])


async def rewrites_async(candidate: Candidate, case: Any) -> float:
    return rewrites(candidate, case)


@pytest.mark.parametrize("function", [rewrites, rewrites_async])
@pytest.mark.parametrize("timeout", [None, 60.0])
def test_a_function_that_changes_its_candidate_changes_no_other_call(
    function: Callable[..., object], timeout: float | None
):
    candidate = Candidate({"text": "be brief"})

    async def thrice() -> list[Rollout | Failure]:
        runner = FunctionRunner(function, "score", 1, timeout)
        scope = JournalScope(MemoryJournal(), JOB)
        try:
            return [await runner.run(JOB, candidate, Case("a", 1), scope) for _ in range(3)]
        finally:
            await runner.close()

    told = asyncio.run(thrice())
    assert [one.metrics for one in told if isinstance(one, Rollout)] == [{"score": 17.0}] * 3
    assert candidate.texts == {"text": "be brief"}


def test_a_proposer_that_writes_into_the_incumbent_changes_only_what_it_proposes(tmp_path: Path):
    def writes(brief: kept.Brief) -> Any:
        texts = cast("dict[str, str]", brief.incumbent.texts)
        texts["text"] = "" if brief.step == 0 else texts["text"] + "x"
        return texts

    def evaluate(candidate: Candidate) -> float:
        return len(candidate["text"])

    found = kept.optimize(
        {"text": "seed", "other": ""},
        evaluate,
        proposers=[writes],
        gate="strict",
        width=1,
        budget=3,
        home=tmp_path,
    )
    assert found.best.texts == {"text": "seedxx", "other": ""}
