"""Kill -9 in the middle of an Inspect task: the same call goes on, and runs no sample again."""

import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from kept.testing.server import ModelServer
from tests.adapters.inspect_kill_target import optimize
from tests.adapters.inspect_world import RULE, Desk

pytestmark = [
    pytest.mark.kill,
    pytest.mark.inspect,
    pytest.mark.filterwarnings("ignore"),  # theirs
    pytest.mark.usefixtures("inspect_ai"),
]

ROOT = Path(__file__).parent.parent.parent
WORKERS = 8


def asked(server: ModelServer) -> Counter[tuple[str, str]]:
    """Which prompt the server answered to which question, and how often."""
    return Counter((seen.lines[0].text, seen.text) for seen in server.answered)


def test_a_killed_call_made_again_runs_no_finished_sample_again(tmp_path: Path):
    # no chance, so that both runs see the same
    with ModelServer(Desk(0.0, 1.0, 0.0)) as server:
        whole = optimize(str(tmp_path / "whole"), server.v1)
        once = asked(server)
    assert RULE in whole.best["prompt"]
    assert once.total() == whole.spend.rollouts >= 200
    with ModelServer(Desk(0.0, 1.0, 0.0)) as server:
        words = [str(tmp_path / "cut"), server.v1]
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.adapters.inspect_kill_target", *words],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        while process.poll() is None and len(server.answered) < 100:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        _, told = process.communicate(timeout=10)
        assert process.returncode == -signal.SIGKILL, told
        before = asked(server)
        cut = optimize(*words)
        both = asked(server)
    assert before.total() >= 100
    assert cut.best == whole.best
    assert cut.state.settled() == whole.state.settled()
    # what was in flight may be asked again, and nothing else
    again = both - once
    assert again.total() <= WORKERS
    assert set(again) <= set(before)
    assert not once - both
