"""What ended HoloDeck's runs and lost them, or did not end them: bugs 8 and 9 of the original."""

import asyncio
from pathlib import Path

import pytest

from kept.recipes.agent_config.tune import compile_coordinate
from kept.run import start
from kept.store.home import Home
from kept.testing.server import Fault, ModelServer, Seen
from tests.recipes.agent_config.tune.world import answer, write_agent

pytestmark = pytest.mark.slow

SIGMA = "split: '1:1:0'\naccept_sigma: 1.0\nrepeats: 2"
HOT = 0.9
"""Where the agent stands: all that is tried above it is answered by nobody."""


@pytest.fixture(autouse=True)
def apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", "none")
    monkeypatch.setenv("KEPT_CACHE", str(tmp_path / "cache"))


def test_a_trial_in_which_everything_errs_ends_no_run(tmp_path: Path):
    """Bug 8: the mean of no scores at all raised, and nothing of the run was left."""

    def fault(seen: Seen) -> Fault | None:
        return Fault("status", 400) if float(seen.body.get("temperature", 0)) > HOT else None

    with ModelServer(answer, faults=fault) as server:
        path = write_agent(tmp_path, server.v1, cases=12, trials=12, more=SIGMA)
        plan = compile_coordinate(path).plan
        _, state = asyncio.run(start(plan, Home(tmp_path / "home")))
    numeric = [step for step in state.history if step.turn.phase == "c1/numeric"]
    erring = [step for step in numeric if "have no answer" in step.verdict.reason]
    assert erring and {step.verdict.outcome for step in erring} == {"skip"}
    assert numeric[-1].step > erring[0].step, "the phase went on"
    assert any(step.turn.phase == "c1/textual" for step in state.history)


def test_a_perfect_bleu_is_1_and_nothing_is_spent_after_it(tmp_path: Path):
    """Bug 8: it was 1.0000000000000004, and refused. Bug 9: trials went on at a loss of 0."""
    truth = "the parcel leaves on the day of the order and comes within a week"
    with ModelServer(lambda _: truth) as server:
        path = write_agent(tmp_path, server.v1, cases=12, trials=12, more=SIGMA)
        text = path.read_text()
        text = text.replace("metric: equality, case_insensitive: true", "metric: bleu")
        path.write_text(text.replace("equality: 1.0", "bleu: 1.0"))
        cases = (tmp_path / "cases.yaml").read_text()
        for mood in ("positive", "negative"):
            cases = cases.replace(f"ground_truth: {mood}", f"ground_truth: {truth}")
        (tmp_path / "cases.yaml").write_text(cases)
        plan = compile_coordinate(path).plan
        _, state = asyncio.run(start(plan, Home(tmp_path / "home")))
    assert [step.turn.phase for step in state.history] == ["baseline"]
    assert state.history[0].verdict.numbers["train"] == 0
    assert state.stopped is not None and state.stopped.kind == "converged"
