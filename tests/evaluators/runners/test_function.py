"""A Python function as evaluator: what it may return, whose fault its exceptions are, timeouts."""

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kept
from kept.core.case import Case
from kept.core.rollout import Failure, Job, Rollout
from kept.engine.replay import JournalScope
from kept.evaluators.runners.function import FunctionRunner, failure_of
from kept.testing import MemoryJournal

HERE = (
    Path(__file__).relative_to(Path.cwd())
    if Path(__file__).is_relative_to(Path.cwd())
    else Path(__file__)
)
JOB = Job("c", "case", 0, "decide")


def run(function: Callable[..., Any], timeout: float | None = None) -> Rollout | Failure:
    async def once() -> Rollout | Failure:
        runner = FunctionRunner(function, "score", 2, timeout)
        scope = JournalScope(MemoryJournal(), JOB)
        try:
            return await runner.run(JOB, kept.Candidate({"text": "seed"}), Case("case", 7), scope)
        finally:
            await runner.close()

    return asyncio.run(once())


def metrics(answer: object) -> object:
    def evaluate(candidate: kept.Candidate) -> object:
        return answer

    rollout = run(evaluate)
    return dict(rollout.metrics) if isinstance(rollout, Rollout) else rollout.kind


class Half:
    """As numbers of numpy and the like are: not a float, but convertible."""

    def __float__(self) -> float:
        return 0.5


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (0.5, {"score": 0.5}),
        (1, {"score": 1.0}),
        (True, {"score": 1.0}),
        (Half(), {"score": 0.5}),
        ((0.5, "why"), {"score": 0.5}),
        ({"score": 0.5, "tokens": 12}, {"score": 0.5, "tokens": 12.0}),
        (({"score": 1}, {"got": [1, 2]}), {"score": 1.0}),
        ("0.5", "harness"),
        (None, "harness"),
        ({"score": "good"}, "harness"),
        ((1, 2, 3), "harness"),
    ],
)
def test_a_function_returns_a_number_or_metrics_with_or_without_information(
    answer: object, expected: object
):
    assert metrics(answer) == expected


def test_information_becomes_the_trace_that_proposers_see():
    def evaluate(candidate: kept.Candidate, case: int) -> tuple[float, object]:
        return case, {"saw": candidate.text}

    rollout = run(evaluate)
    assert isinstance(rollout, Rollout)
    assert rollout.metrics == {"score": 7.0}
    assert rollout.trace[0].text == '{"saw": "seed"}'


def test_an_async_function_is_awaited_and_a_plain_one_runs_in_a_thread():
    where: list[int] = []

    async def awaited(candidate: kept.Candidate) -> float:
        await asyncio.sleep(0)
        where.append(threading.get_ident())
        return 1.0

    def plain(candidate: kept.Candidate) -> float:
        where.append(threading.get_ident())
        return 1.0

    assert isinstance(run(awaited), Rollout)
    assert isinstance(run(plain), Rollout)
    assert where[0] == threading.get_ident() != where[1]


class Answered(Exception):
    """As the exceptions of HTTP clients are."""

    def __init__(self, status_code: int) -> None:
        super().__init__(f"status {status_code}")
        self.status_code = status_code


@pytest.mark.parametrize(
    ("error", "kind", "blame"),
    [
        (AssertionError("no"), "crash", "candidate"),
        (subprocess.CalledProcessError(1, "run"), "crash", "candidate"),
        (ValueError("no"), "exception", "candidate"),
        (Answered(400), "exception", "candidate"),
        (Answered(401), "exception", "candidate"),
        (KeyError("no"), "exception", "candidate"),
        (Answered(429), "rate_limit", "infrastructure"),
        (Answered(503), "server", "infrastructure"),
        (Answered(408), "server", "infrastructure"),
        (ConnectionResetError("gone"), "network", "infrastructure"),
        (TimeoutError("late"), "network", "infrastructure"),
    ],
)
def test_an_outage_is_nobodys_fault_and_anything_else_is_the_candidates(
    error: Exception, kind: str, blame: str
):
    def raises(candidate: kept.Candidate) -> float:
        raise error

    for failure in (failure_of(error), run(raises)):
        assert isinstance(failure, Failure)
        assert (failure.kind, failure.blame) == (kind, blame)


def test_an_outage_never_counts_as_a_score(tmp_path: Path):
    """What peers turn into zeros: an API that is down for one of the candidates."""
    tries: dict[str, int] = {}

    async def flaky(candidate: kept.Candidate, case: int) -> float:
        tries[candidate.text] = tries.get(candidate.text, 0) + 1
        if candidate.text == "better" and tries["better"] <= 3:
            raise Answered(429)
        return {"seed": 0.5, "better": 0.9, "worse": 0.1}[candidate.text]

    result = kept.optimize(
        "seed", flaky, [1, 2, 3, 4], proposers=["worse", "better"], home=tmp_path, budget=2
    )
    assert result.best.text == "better"
    assert result.best_value == 0.9
    assert result.state.spend.retries >= 1


def test_a_call_that_hangs_is_the_candidates_timeout_and_holds_up_no_other(tmp_path: Path):
    release = threading.Event()

    def evaluate(candidate: kept.Candidate, case: int) -> float:
        if candidate.text == "hangs":
            release.wait(30)
        return float(len(candidate.text) + case)

    try:
        result = kept.optimize(
            "seed",
            evaluate,
            list(range(12)),
            proposers=["hangs", "longer", "the longest"],
            home=tmp_path,
            workers=3,
            timeout=0.2,
            width=2,
        )
    finally:
        release.set()
    assert [step.verdict.outcome for step in result.state.history][:3] == ["crash", "keep", "keep"]
    run = kept.Run(result.folder)
    assert "no answer within 0.2 s" in run.steps[0].reason
    run.close()
    assert result.best.text == "the longest"


@pytest.mark.slow
def test_a_process_ends_though_a_call_hangs(tmp_path: Path):
    script = f"""
import kept, time
def evaluate(candidate):
    if candidate.text == "hangs":
        time.sleep(60)
    return 1.0
result = kept.optimize("seed", evaluate, proposers=["hangs"], home={str(tmp_path)!r}, timeout=0.2)
print(result.state.history[0].verdict.outcome)
"""
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=50, check=True
    )
    assert done.stdout.strip() == "crash"
    assert time.monotonic() - began < 30


def test_a_broken_evaluator_stops_the_run_and_says_what_is_wrong(tmp_path: Path):
    def broken(candidate: kept.Candidate) -> float:
        return undefined  # noqa: F821 # pyright: ignore # the bug this test is about

    texts = [f"text {n}" for n in range(20)]
    with pytest.raises(kept.RunError, match="`evaluate` raised in every rollout") as caught:
        kept.optimize("seed", broken, proposers=texts, home=tmp_path, width=1)
    line = broken.__code__.co_firstlineno + 1
    assert caught.value.message.endswith(
        f"NameError: name 'undefined' is not defined ({HERE}:{line})"
    )


def test_a_proposer_that_always_fails_stops_the_run_and_says_why(tmp_path: Path):
    def broken(brief: kept.Brief) -> str:
        raise KeyError("no such thing")

    def evaluate(candidate: kept.Candidate) -> float:
        return 1.0

    told = r"the proposer `broken` failed: KeyError: 'no such thing' \(.*test_function\.py:\d+\)"
    with pytest.raises(kept.RunError, match=told):
        kept.optimize("seed", evaluate, proposers=[broken], home=tmp_path, width=1)


def test_a_run_is_not_resumed_with_another_measure(tmp_path: Path):
    def first(candidate: kept.Candidate) -> float:
        return 1.0

    def second(candidate: kept.Candidate) -> float:
        return 2.0

    kept.optimize("seed", first, proposers=["other"], home=tmp_path)
    with pytest.raises(kept.JournalError, match="evaluate changed since it started"):
        kept.optimize("seed", second, proposers=["other"], home=tmp_path, resume="last")


def test_a_failure_names_the_last_line_of_the_users_own_code(tmp_path: Path):
    def parses(candidate: kept.Candidate) -> float:
        return json.loads(candidate.text)

    line = parses.__code__.co_firstlineno + 1
    result = kept.optimize("1", parses, proposers=["{"], home=tmp_path)
    with kept.read_run(result.folder) as run:
        assert run.steps[0].reason.endswith(f"({HERE}:{line})")


def test_without_cases_a_second_argument_keeps_its_default(tmp_path: Path):
    def weighed(candidate: kept.Candidate, weight: float = 2.0) -> float:
        return weight * len(candidate.text)

    def longer(brief: kept.Brief, words: int = 3) -> str:
        return brief.incumbent.text + "b" * words

    result = kept.optimize("a", weighed, proposers=[longer], budget=1, home=tmp_path)
    assert (result.seed_value, result.best_value) == (2.0, 8.0)


def test_with_cases_a_second_argument_is_the_case_whatever_its_default(tmp_path: Path):
    def passed(candidate: kept.Candidate, case: object = None) -> float:
        return float(case is not None)

    result = kept.optimize("a", passed, ["x", "y"], proposers=["b"], budget=1, home=tmp_path)
    assert result.seed_value == 1.0


def test_a_plain_function_may_answer_with_something_to_await(tmp_path: Path):
    async def later(candidate: kept.Candidate) -> float:
        await asyncio.sleep(0)
        return float(len(candidate.text))

    def wrapped(candidate: kept.Candidate) -> object:
        return later(candidate)

    result = kept.optimize("a", wrapped, proposers=["bb"], budget=1, home=tmp_path)
    assert (result.seed_value, result.best_value) == (1.0, 2.0)
