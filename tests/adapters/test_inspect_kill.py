"""Kill -9 in the middle of an Inspect task: the same call goes on, and runs no sample again."""

import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

import kept
from kept.core.rollout import Job
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


def finished(folder: Path) -> Counter[Job]:
    """Rollouts that have a result."""
    (found,) = (folder / "runs").iterdir()
    with kept.read_run(found) as run:
        return Counter(job for _, job, _ in run.rollouts())


def test_a_killed_call_made_again_runs_no_finished_sample_again(tmp_path: Path):
    with ModelServer(Desk()) as server:
        words = [str(tmp_path), server.v1]
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.adapters.inspect_kill_target", *words],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        while process.poll() is None and len(server.answered) < 100:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        _, told = process.communicate(timeout=120)
        assert process.returncode == -signal.SIGKILL, told
        before = finished(tmp_path)
        assert before.total() >= 100 - WORKERS
        result = optimize(*words)
        asked = len(server.answered)
    assert RULE in result.best["prompt"]
    done = finished(tmp_path)
    assert done.total() >= 200
    assert max(done.values()) == 1
    assert not before - done
    # what was in flight may be asked again, and nothing else
    assert asked <= done.total() + WORKERS
