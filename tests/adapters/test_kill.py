"""Kill -9 in the middle of a peer's call: the same call goes on, and pays for nothing twice."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

import kept
from kept.core.rollout import Job
from tests import warm
from tests.adapters import dspy_world, gepa_world
from tests.conftest import needed_peer
from tests.engine.counting_server import CountingServer

pytestmark = pytest.mark.kill

ROOT = Path(__file__).parent.parent.parent
WORKERS = 8


def spawn(kind: str, folder: Path, *more: str, path: str = "") -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "tests.adapters.kill_target", kind, str(folder), *more]
    pipe = subprocess.PIPE
    env = {"PATH": os.defpath, "HOME": str(folder), "PYTHONPATH": path}
    # what is imported from there must not be there already
    start = subprocess.Popen[str] if path else warm.Popen
    return start(command, cwd=ROOT, env=env, stdout=pipe, stderr=pipe, text=True)


def finish(process: "subprocess.Popen[str]") -> str:
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return out


def kill_at(process: "subprocess.Popen[str]", calls: int, so_far: Callable[[], int]) -> None:
    """In the middle of its work, after so many calls."""
    while process.poll() is None and so_far() < calls:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=120)
    assert process.returncode == -signal.SIGKILL


def calls(folder: Path) -> Counter[str]:
    path = folder / "calls"
    return Counter(path.read_text().split()) if path.exists() else Counter()


def the_run(folder: Path) -> Path:
    (found,) = (folder / "runs-here" / "runs").iterdir()
    return found


def state(folder: Path) -> object:
    with kept.read_run(the_run(folder)) as run:
        return run.state.settled()


def finished(folder: Path) -> Counter[Job]:
    """Rollouts that have a result."""
    with kept.read_run(the_run(folder)) as run:
        return Counter(job for _, job, _ in run.rollouts())


def test_a_killed_call_made_again_ends_as_if_nothing_had_happened(tmp_path: Path):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    whole.mkdir()
    cut.mkdir()
    best = finish(spawn("gepa", whole))
    assert gepa_world.RULE in best
    for part in (0.25, 0.6):
        most = int(part * calls(whole)["task"])
        kill_at(spawn("gepa", cut), most, lambda: calls(cut)["task"])
    assert finish(spawn("gepa", cut)) == best
    assert state(cut) == state(whole)
    # what was in flight may be asked again, and nothing else
    assert calls(cut)["task"] <= calls(whole)["task"] + 2 * WORKERS
    assert calls(cut)["reflection"] <= calls(whole)["reflection"] + 2 * WORKERS


@pytest.mark.dspy
def test_a_killed_optimization_of_a_module_asks_again_only_for_what_was_in_flight(tmp_path: Path):
    path = needed_peer("dspy")
    kill_at(spawn("dspy", tmp_path, path=str(path)), 150, lambda: calls(tmp_path)["task"])
    before = finished(tmp_path)
    assert dspy_world.RULE in finish(spawn("dspy", tmp_path, path=str(path)))
    done = finished(tmp_path)
    assert before and done.total() >= 200 and max(done.values()) == 1
    assert calls(tmp_path)["task"] <= done.total() + WORKERS


def test_a_killed_run_of_a_test_suite_runs_again_only_what_was_in_flight(tmp_path: Path):
    with CountingServer() as server:
        words = ("pytest", tmp_path, str(server.port))
        kill_at(spawn(*words), 100, server.asked.total)
        before = finished(tmp_path)
        assert finish(spawn(*words)) == "7"
        done = finished(tmp_path)
        assert before and done.total() >= 200 and max(done.values()) == 1
        assert server.asked.total() <= done.total() + WORKERS
