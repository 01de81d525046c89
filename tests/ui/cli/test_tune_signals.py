"""Signals to `kept test optimize` in a real process: how it ends, and how it goes on."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kept.core.state import State
from kept.recipes.agent_config.tune import compile_coordinate
from kept.run import start
from kept.store.home import Home
from kept.store.reader import Run
from kept.testing.server import ModelServer
from tests import warm
from tests.recipes.agent_config.tune.world import answer, write_agent

pytestmark = pytest.mark.slow

# 126 answers in all: room for two signals, each with a dozen answers that come before it is heard
SIGMA = "accept_sigma: 1.0\nrepeats: 2\nsplit: '1:1:0'"


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with ModelServer(answer, latency=0.01) as made:
        yield made


@pytest.fixture(scope="module")
def whole(server: ModelServer, tmp_path_factory: pytest.TempPathFactory) -> State:
    """What the run comes to that nobody interrupts."""
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KEY", "none")
        patch.setenv("KEPT_CACHE", str(folder / "cache"))
        plan = compile_coordinate(agent(folder, server)).plan
        return asyncio.run(start(plan, Home(folder / "home")))[1]


def agent(folder: Path, server: ModelServer) -> Path:
    return write_agent(folder, server.v1, cases=16, trials=3, more=SIGMA)


def sitting(folder: Path, *words: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "kept", "test", "optimize", *words]
    env = {"PATH": os.defpath, "HOME": str(folder), "LANG": "C.UTF-8", "KEY": "none"}
    pipe = subprocess.PIPE
    return warm.Popen(
        command,
        cwd=folder,
        env=env,
        stdout=pipe,
        stderr=pipe,
        text=True,
        start_new_session=True,
    )


def interrupted(
    process: "subprocess.Popen[str]", server: ModelServer, more: int, number: signal.Signals
) -> tuple[str, str]:
    """Sent a signal after so many more answers; what it said."""
    most = len(server.answered) + more
    while process.poll() is None and len(server.answered) < most:
        time.sleep(0.005)
    os.killpg(process.pid, number)
    return process.communicate(timeout=120)


def results(folder: Path) -> Path:
    (found,) = (folder / "results" / "optimizer").iterdir()
    return found


@pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda one: one.name
)
def test_interrupted_it_ends_with_2_and_a_report_and_goes_on_to_the_same_end(
    number: signal.Signals, whole: State, server: ModelServer, here: Path
):
    agent(here, server)
    process = sitting(here, "agent.yaml")
    _, said = interrupted(process, server, 40, number)
    assert process.returncode == 2, said
    assert "Traceback" not in said
    first = (results(here) / "report.md").read_text()
    assert "interrupted" in first
    told = json.loads((results(here) / "exit.json").read_text())
    assert told["exit_reason"] == "interrupted"
    run = results(here).name
    assert f"interrupted: `kept test optimize --resume {run}` goes on" in said
    # again, this time named as it was told
    process = sitting(here, "--resume", run)
    _, said = interrupted(process, server, 30, number)
    assert process.returncode == 2, said
    last = sitting(here, "--resume", "last")
    _, said = last.communicate(timeout=60)
    assert last.returncode == 0, said
    with Run(here / ".kept" / "runs" / run) as opened:
        assert opened.state.settled() == whole.settled()
    assert "interrupted" not in (results(here) / "report.md").read_text()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda one: one.name)
def test_events_of_an_interrupted_run_end_with_an_error_that_is_not_fatal(
    number: signal.Signals, server: ModelServer, here: Path
):
    agent(here, server)
    process = sitting(here, "agent.yaml", "--progress", "json")
    out, said = interrupted(process, server, 40, number)
    assert process.returncode == 2, said
    events = [json.loads(line) for line in out.splitlines()]
    assert (events[-1]["event"], events[-1]["fatal"]) == ("error", False)
    assert "run_completed" not in {event["event"] for event in events}


@pytest.mark.parametrize("link", ["results", "results/optimizer"])
def test_results_that_a_link_leads_to_are_refused_before_anything_is_asked(
    link: str, server: ModelServer, here: Path
):
    agent(here, server)
    (here / "elsewhere").mkdir()
    (here / link).parent.mkdir(exist_ok=True)
    (here / link).symlink_to(here / "elsewhere")
    before = len(server.log)
    process = sitting(here, "agent.yaml")
    _, said = process.communicate(timeout=60)
    assert process.returncode == 1
    assert f"{here / link}: it is a link, and nothing is written through links" in said
    assert len(server.log) == before
    assert list((here / "elsewhere").iterdir()) == []
