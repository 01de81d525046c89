"""Kill -9 in the middle of a call of gepa's: the same call goes on, and pays for nothing twice."""

import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

import kept
from tests.adapters.gepa_world import RULE

pytestmark = pytest.mark.kill

ROOT = Path(__file__).parent.parent.parent
WORKERS = 8


def spawn(folder: Path) -> "subprocess.Popen[str]":
    words = [str(folder / "runs-here"), str(folder / "calls")]
    command = [sys.executable, "-m", "tests.adapters.kill_target", *words]
    return subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finish(process: "subprocess.Popen[str]") -> str:
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return out


def calls(folder: Path) -> Counter[str]:
    path = folder / "calls"
    return Counter(path.read_text().split()) if path.exists() else Counter()


def state(folder: Path) -> object:
    (found,) = (folder / "runs-here" / "runs").iterdir()
    with kept.read_run(found) as run:
        return run.state.settled()


def test_a_killed_call_made_again_ends_as_if_nothing_had_happened(tmp_path: Path):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    whole.mkdir()
    cut.mkdir()
    best = finish(spawn(whole))
    assert RULE in best
    kills = 0
    for part in (0.25, 0.6):
        process = spawn(cut)
        while process.poll() is None and calls(cut)["task"] < part * calls(whole)["task"]:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=10)
        kills += process.returncode == -signal.SIGKILL
    assert kills == 2
    assert finish(spawn(cut)) == best
    assert state(cut) == state(whole)
    # what was in flight may be asked again, and nothing else
    assert calls(cut)["task"] <= calls(whole)["task"] + kills * WORKERS
    assert calls(cut)["reflection"] <= calls(whole)["reflection"] + kills * WORKERS
