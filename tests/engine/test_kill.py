"""Kill -9 on a real process: nothing that was answered is asked again, and the end is the same."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kept.core.state import State
from kept.store import codec
from kept.store.reader import Run
from tests import warm
from tests.engine.counting_server import CountingServer
from tests.engine.kill_target import HOLDOUT, STEPS, WORKERS

pytestmark = pytest.mark.kill

ROOT = Path(__file__).parent.parent.parent
MOMENTS = 40
SAMPLE = (11, 27)
"""Parts of a run in which CI kills it; `nightly` takes all of them."""


def moments() -> list[object]:
    return [
        pytest.param(n, marks=() if n in SAMPLE else pytest.mark.nightly) for n in range(MOMENTS)
    ]


def spawn(home: Path, port: int, *more: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "tests.engine.kill_target", str(home), str(port), *more]
    return warm.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process: "subprocess.Popen[str]") -> str:
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    return out.strip()


def the_run(home: Path) -> Run:
    (folder,) = (home / "runs").iterdir()
    return Run(folder)


def settled(run: Run) -> State:
    run.close()
    return run.state.settled()


def wait_for(path: Path, process: "subprocess.Popen[str]") -> None:
    """Until the run's folder is there."""
    while not any(path.glob("*")) and process.poll() is None:
        time.sleep(0.002)


def written_jobs(folder: Path) -> set[str]:
    lines = (folder / "rollouts.jsonl").read_bytes().split(b"\n")[:-1]
    rows = [codec.decode_line(line) for line in lines]
    return {f"/{r.candidate}/{r.case}" for r in rows if isinstance(r, codec.RolloutLine)}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[State, float]:
    """The run that nobody kills, and how long it takes."""
    home = tmp_path_factory.mktemp("whole")
    with CountingServer() as server:
        process = spawn(home, server.port)
        wait_for(home / "runs", process)
        began = time.monotonic()
        finish(process)
        took = time.monotonic() - began
        assert server.asked.total() >= 200
        assert max(server.asked.values()) == 1
    state = settled(the_run(home))
    assert state.keeps >= 3, "the kills while best/ is swapped need swaps"
    return state, took


@pytest.mark.parametrize("moment", moments())
def test_a_killed_run_asks_again_only_for_what_was_in_flight(
    moment: int, whole: tuple[State, float], tmp_path: Path
):
    state, took = whole
    # every part of a run gets a kill at a random place inside it
    wait = 0.9 * took * (moment + random.random()) / MOMENTS
    with CountingServer() as server:
        process = spawn(tmp_path, server.port)
        wait_for(tmp_path / "runs", process)
        time.sleep(wait)
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=120)
        folder = next((tmp_path / "runs").iterdir())
        started = (folder / "journal.jsonl").exists() and (folder / "journal.jsonl").read_bytes()
        if not started:
            return  # killed before its first event: nothing to resume, and nothing was asked
        known = written_jobs(folder)
        time.sleep(0.2)  # the server has yet to hear of what was on its way to it
        asked_before = server.asked.copy()
        finish(spawn(tmp_path, server.port, "--resume"))
        again = {job for job, times in server.asked.items() if times > 1}
        assert max(server.asked.values()) <= 2
        assert not again & known, "a result was written, and asked for again"
        assert len(again) <= WORKERS, "no more than was in flight may be asked again"
        assert again <= asked_before.keys()
    assert settled(the_run(tmp_path)) == state


@pytest.mark.parametrize("where", ["half written", "before the link moves", "after the link moved"])
def test_a_run_killed_while_best_is_swapped_loses_nothing(
    where: str, whole: tuple[State, float], tmp_path: Path
):
    state, _ = whole
    with CountingServer() as server:
        process = spawn(tmp_path, server.port, "--die", where)
        process.communicate(timeout=60)
        assert process.returncode == -signal.SIGKILL, "it should have died on the way"
        run = the_run(tmp_path)
        # whatever best/ holds is one candidate, whole
        text = (run.folder / "best" / "text").read_text()
        assert text in {
            run.candidate(s.candidate).text for s in run.state.history if s.candidate
        } | {run.seed.text}
        known = written_jobs(run.folder)
        run.close()
        best = finish(spawn(tmp_path, server.port, "--resume"))
        assert not {job for job, times in server.asked.items() if times > 1} & known
    run = the_run(tmp_path)
    assert run.state.settled() == state
    assert best == run.state.best
    assert (run.folder / "best" / "text").read_text() == run.best.text
    assert [f.name for f in (run.folder / ".best").iterdir()] == [run.state.best]
    run.close()


def test_a_second_process_on_a_run_is_refused_with_the_pid_of_the_first(tmp_path: Path):
    with CountingServer() as server:
        first = spawn(tmp_path, server.port)
        wait_for(tmp_path / "runs", first)
        folder = next((tmp_path / "runs").iterdir())
        wait_for(folder, first)
        time.sleep(0.1)
        second = spawn(tmp_path, server.port, "--resume")
        _, err = second.communicate(timeout=120)
        assert second.returncode != 0
        assert f"being written by process {first.pid}" in err
        finish(first)
        assert max(server.asked.values()) == 1


def test_a_run_stopped_by_ctrl_c_can_be_resumed_and_repeats_nothing(
    whole: tuple[State, float], tmp_path: Path
):
    state, took = whole
    with CountingServer() as server:
        process = spawn(tmp_path, server.port)
        wait_for(tmp_path / "runs", process)
        time.sleep(took / 2)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=120)
        assert "resume=" in err
        finish(spawn(tmp_path, server.port, "--resume"))
        # what was in flight when it was interrupted was allowed to finish
        assert max(server.asked.values()) == 1
    assert settled(the_run(tmp_path)) == state


def test_the_numbers_of_this_test_are_those_that_were_promised():
    assert STEPS * HOLDOUT >= 200
    assert os.name == "posix"
