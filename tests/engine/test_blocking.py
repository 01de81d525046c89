"""Evaluators that misbehave: that block the event loop, or swallow their cancellation."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import kept
from kept.core.verdict import View

CASES = [{"id": str(n), "q": n * n * 7919} for n in range(16)]


def test_what_a_blocking_evaluator_finished_is_written_before_the_next_one_begins(tmp_path: Path):
    finished = 0
    behind: list[int] = []

    async def evaluate(candidate: kept.Candidate, case: object) -> float:
        nonlocal finished
        written = sum(
            path.read_bytes().count(b"\n") - 1 for path in tmp_path.glob("runs/*/rollouts.jsonl")
        )
        behind.append(finished - written)
        time.sleep(0.003)  # a blocking client, as users have them
        finished += 1
        return 0.5

    kept.optimize(
        "a", evaluate, CASES, proposers=["b"], gate="strict", home=tmp_path, workers=4, budget=1
    )
    assert len(behind) == 16
    assert set(behind) == {0}, "a kill would lose what was paid for"


def test_a_runner_that_swallowed_a_cancellation_does_not_hang_the_run(tmp_path: Path):
    swallowed = 0

    async def evaluate(candidate: kept.Candidate, case: object) -> float:
        nonlocal swallowed
        slow, moved = "slow" in candidate.text, "keep" in candidate.text
        if moved and not slow:
            await asyncio.sleep(0.05)
            return 1.0
        if slow and not moved:  # made moot by the keep
            try:
                await asyncio.sleep(5)
            except asyncio.CancelledError:
                swallowed += 1
                return 0.0
        if slow:
            gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            gone.cancel()
            await gone
        return 0.0

    def propose(brief: kept.Brief) -> kept.Proposal:
        line = "keep" if brief.step == 0 else f"slow {brief.step}"
        return kept.Proposal((kept.Append("text", line),))

    ended: list[kept.Result] = []

    def whole() -> None:
        ended.append(
            kept.optimize(
                "a\n",
                evaluate,
                CASES,
                proposers=[propose],
                gate="strict",
                home=tmp_path,
                width=3,
                workers=4,
                budget=3,
                bounds=(0, 1),
            )
        )

    run = threading.Thread(target=whole, daemon=True)
    run.start()
    run.join(30)
    assert ended, "it hangs"
    assert swallowed
    assert ended[0].state.keeps == 1


BLOCKING = """
import sys, time, kept
async def evaluate(candidate, case):
    print("x", flush=True)
    time.sleep(0.1)
    return 0.5
cases = [{"id": str(n), "q": n * n * 7919} for n in range(400)]
kept.optimize("a", evaluate, cases, proposers=["b"], home=sys.argv[1], workers=8, budget=1)
"""


@pytest.mark.slow
def test_two_ctrl_c_end_a_run_whose_evaluator_blocks(tmp_path: Path):
    command = [sys.executable, "-c", BLOCKING, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        assert run.stdout is not None
        for _ in range(8):
            run.stdout.readline()
        os.kill(run.pid, signal.SIGINT)
        time.sleep(0.3)
        os.kill(run.pid, signal.SIGINT)
        done, _ = run.communicate(timeout=60)
    assert done.count(b"x") < 60, "twenty seconds of work were in the queue"


def test_a_resume_knows_what_a_keep_left_behind_half_measured(tmp_path: Path):
    calls: list[tuple[str, str]] = []

    async def evaluate(candidate: kept.Candidate, case: dict[str, str]) -> float:
        if "keep" in candidate.text and "x" not in candidate.text:
            await asyncio.sleep(0.1)
        calls.append((candidate.id, case["id"]))
        return float("keep" in candidate.text)

    def propose(brief: kept.Brief) -> kept.Proposal:
        edits = (kept.Append("text", "keep\n"), kept.Append("text", "x\n"))
        if brief.step < 2:
            return kept.Proposal((edits[brief.step],))
        return kept.Proposal((kept.Write("text", "other\n" if brief.step == 2 else "seed\nx\n"),))

    def sit(steps: int, resume: str | None) -> kept.Result:
        return kept.optimize(
            "seed\n",
            evaluate,
            CASES[:8],
            proposers=[propose],
            home=tmp_path,
            width=2,
            budget=steps,
            resume=resume,
        )

    sit(3, None)
    sit(4, "last")
    assert len(calls) == len(set(calls)), "what was written is never asked again"


class OwnGate:
    """A gate of a user, without a repr of its own."""

    name = "own"

    def decide(self, view: View) -> kept.Verdict:
        return kept.Verdict("discard", "never")


def half(candidate: kept.Candidate) -> float:
    return 0.5


def numbered(brief: kept.Brief) -> str:
    return f"text {brief.step}"


def test_a_run_with_a_gate_of_ones_own_can_be_resumed(tmp_path: Path):
    def sit(steps: int, resume: str | None) -> kept.Result:
        return kept.optimize(
            "a",
            half,
            proposers=[numbered],
            gate=OwnGate(),
            home=tmp_path,
            budget=steps,
            resume=resume,
        )

    sit(1, None)
    assert len(sit(2, "last").state.history) == 2
