"""Things that went wrong once: each of these hung, lost money, leaked or broke a run."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import kept
from kept.core.artifact import Candidate
from kept.core.case import Case
from kept.core.ports import Scope
from kept.core.proposal import Ask
from kept.core.rollout import Failure, Job, Pair, Rollout, Usage
from kept.core.score import Score
from kept.run import Watch, resume, start
from kept.store.home import Home
from kept.testing import FakeClock
from tests.engine.test_cut_and_resume import cut, finish
from tests.engine.worlds import make_plan

WATCH = Watch(clock=FakeClock())
"""Nobody waits for the pauses between tries."""


def outcomes(result: kept.Result) -> list[str]:
    return [step.verdict.outcome for step in result.state.history]


class Odd(BaseException):
    """As some libraries raise to end a call: no `Exception`."""


def test_whatever_evaluate_raises_the_run_goes_on(tmp_path: Path):
    def evaluate(candidate: Candidate) -> float:
        if candidate.text == "odd":
            raise Odd("out")
        return float(len(candidate.text))

    result = kept.optimize("seed", evaluate, proposers=["odd", "longer"], home=tmp_path, width=1)
    assert outcomes(result)[:2] == ["crash", "keep"]


@pytest.mark.parametrize("narrow", [1, 2])
def test_a_resume_may_be_narrower_than_the_run_was(narrow: int, tmp_path: Path):
    folder, whole, moments = finish(tmp_path / "home", 8, 14, 3)[:3]
    for sizes in moments.sizes[10::25]:
        part = cut(folder, sizes, tmp_path / "part")
        plan, _, _ = make_plan(narrow, 14, 3)
        _, state = asyncio.run(asyncio.wait_for(resume(plan, part), 60))
        assert len(state.history) == len(whole.history)


def test_no_brief_holds_what_failed_on_a_deciding_case(tmp_path: Path):
    seen: list[str] = []

    def evaluate(candidate: Candidate, case: str) -> float:
        if candidate.text != "seed":
            raise ValueError(f"expected {case}")
        return 0.5

    def propose(brief: kept.Brief) -> str:
        seen.append(repr(list(brief.history)))
        return f"text {brief.step}"

    cases = kept.Cases(train=(kept.Case("t", "open"),), holdout=(kept.Case("h", "HIDDEN"),))
    kept.optimize("seed", evaluate, cases, proposers=[propose], budget=3, home=tmp_path, width=1)
    assert len(seen) == 3
    assert not any("HIDDEN" in text for text in seen)
    (folder,) = (tmp_path / "runs").iterdir()
    run = kept.Run(folder)
    assert "HIDDEN" in run.steps[0].reason, "people are told"
    run.close()


def test_a_proposer_that_asks_the_same_twice_is_told_so_and_does_not_spin(tmp_path: Path):
    def propose(brief: kept.Brief) -> Ask:
        return Ask(brief.incumbent.id, (Pair(brief.train[0].id, 0),), "feedback")

    def evaluate(candidate: Candidate, case: int) -> float:
        return 1.0

    with pytest.raises(kept.RunError, match="asked for the same thing twice"):
        kept.optimize("seed", evaluate, range(6), proposers=[propose], home=tmp_path, width=1)


def test_a_run_whose_proposer_never_proposes_ends(tmp_path: Path):
    def propose(brief: kept.Brief) -> None:
        return None

    def evaluate(candidate: Candidate) -> float:
        return 1.0

    limits = kept.Budget(max_rollouts=10)
    result = kept.optimize("seed", evaluate, proposers=[propose], budget=limits, home=tmp_path)
    assert result.stopped.kind == "nothing left to propose"


@pytest.mark.parametrize("reply", [{"text": None}, {"text": 3}, 7, object()])
def test_a_strange_reply_is_a_crash_and_the_journal_stays_readable(reply: Any, tmp_path: Path):
    def propose(brief: kept.Brief) -> Any:
        return reply if brief.step == 0 else "better"

    def evaluate(candidate: Candidate) -> float:
        return float(len(candidate.text))

    result = kept.optimize("seed", evaluate, proposers=[propose], budget=2, home=tmp_path, width=1)
    assert outcomes(result) == ["crash", "keep"]
    run = kept.Run(result.folder)
    assert len(run.events) > 3
    run.close()


class PaidRunner:
    """Reports what it cost; its scorer is down twice."""

    def __init__(self, usd: float) -> None:
        self.usd = usd
        self.runs = 0
        self.scores = 0

    async def run(
        self, job: Job, candidate: Candidate, case: Case, scope: Scope
    ) -> Rollout | Failure:
        self.runs += 1
        return Rollout(usage=Usage(calls=1, usd=self.usd))

    async def score(
        self, job: Job, rollout: Rollout, candidate: Candidate, case: Case, scope: Scope
    ) -> Score | Failure:
        self.scores += 1
        if self.scores % 3:
            return Failure("server", "infrastructure", "503", usage=Usage(calls=1, usd=0.01))
        return Score({"score": 1.0})

    async def close(self) -> None:
        pass


def test_a_scorer_that_is_down_does_not_have_the_paid_runner_run_again(tmp_path: Path):
    plan, _, _ = make_plan(1, 2, 3)
    paid = PaidRunner(0.5)
    plan = replace(plan, runner=paid, scorer=paid, workers=1)
    _, state = asyncio.run(start(plan, Home(tmp_path), WATCH))
    assert paid.runs == state.spend.rollouts
    assert state.spend.usd == pytest.approx(0.5 * paid.runs, rel=0.1)


def test_a_number_that_cannot_be_written_down_stops_the_run_and_breaks_no_journal(tmp_path: Path):
    plan = replace(make_plan(1, 2, 3)[0], workers=1)
    broken = PaidRunner(float("nan"))
    with pytest.raises(kept.RunError, match="cannot be written down"):
        asyncio.run(start(replace(plan, runner=broken, scorer=broken), Home(tmp_path), WATCH))
    (folder,) = (tmp_path / "runs").iterdir()
    sound = PaidRunner(0.1)
    _, state = asyncio.run(resume(replace(plan, runner=sound, scorer=sound), folder, WATCH))
    assert state.stopped is not None
    assert state.stopped.kind == "iterations"


def test_secrets_of_the_environment_reach_no_file_of_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    canary = "sk-canary-0123456789"
    monkeypatch.setenv("OPENAI_API_KEY", canary)

    def evaluate(candidate: Candidate) -> tuple[float, str]:
        if candidate.text == "fails":
            raise ValueError(f"401 with key {canary}")
        return 1.0, f"called with {canary}"

    kept.optimize("seed", evaluate, proposers=["fails", "runs"], home=tmp_path, width=1)
    for file in tmp_path.rglob("*"):
        if file.is_file():
            assert canary.encode() not in file.read_bytes(), file


def test_a_later_step_waits_for_money_that_an_earlier_one_holds(tmp_path: Path):
    """With a worst case far above the true cost, width must not decide how far a budget goes."""
    ends: list[int] = []
    for width in (1, 4):
        plan, _, _ = make_plan(width, 8, 3)
        cheap = PaidRunner(0.01)
        cheap.scores = 2
        plan = replace(
            plan, runner=cheap, worst_usd=1.0, budget=kept.Budget(max_iterations=8, max_usd=10.0)
        )
        plan = replace(plan, scorer=_Always())
        _, state = asyncio.run(start(plan, Home(tmp_path / str(width))))
        ends.append(len(state.history))
    assert ends == [8, 8]


class _Always:
    async def score(
        self, job: Job, rollout: Rollout, candidate: Candidate, case: Case, scope: Scope
    ) -> Score | Failure:
        return Score({"score": 1.0})

    async def close(self) -> None:
        pass
