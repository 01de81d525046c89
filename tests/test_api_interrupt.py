"""Ctrl-C where an event loop is already running, as in a notebook."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kept import read_run

pytestmark = pytest.mark.slow

CELL = """
import asyncio
import sys
from pathlib import Path

from kept import Append, Brief, Candidate, Proposal, optimize


async def evaluate(candidate: Candidate) -> float:
    Path("began").touch()
    await asyncio.sleep(0.2)
    return float(len(candidate.text))


def propose(brief: Brief) -> Proposal:
    return Proposal((Append("text", f" {brief.step}"),))


async def cell() -> None:
    try:
        optimize("seed", evaluate, proposers=[propose], budget=10_000, home=Path("home"))
    except KeyboardInterrupt as stopped:
        print(stopped)
        sys.exit(7)


asyncio.run(cell())
"""


def test_ctrl_c_in_a_running_event_loop_stops_the_run_in_good_order(tmp_path: Path):
    process = subprocess.Popen(
        [sys.executable, "-c", CELL],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    while not (tmp_path / "began").exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, "resume=" in out) == (7, True), err
    (folder,) = (tmp_path / "home" / "runs").iterdir()
    with read_run(folder) as run:
        assert run.state.stopped is not None
        assert run.state.stopped.kind == "interrupted"
