"""A project with runs of every kind and the real `kept view` over it, once for all tests here.

Workers share the project, so that nobody may change a run of it; whoever has something done works
on a copy.
"""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from kept.testing.server import ModelServer
from tests import warm
from tests.ui.web.asking import Site
from tests.ui.web.project import make_agents, make_project
from tests.ui.web.team import Team


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:  # noqa: TID251 # as xdist tells it
        root = root.parent
    folder, done = root / "project", root / "project.made"
    with (root / "project.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)
            make_project(folder)
            with ModelServer(Team()) as server:
                make_agents(folder, server)
            done.touch()
    return folder


@pytest.fixture(scope="session")
def site(project: Path) -> Generator[Site]:
    yield from serving(project / ".kept")


def serving(home: Path, **variables: str) -> Generator[Site]:
    """`kept view` over a home, as a process, until the test is over."""
    command = [sys.executable, "-m", "kept", "view", str(home), "--no-browser", "--port", "0"]
    process = warm.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **variables},  # noqa: TID251 # as a shell would
    )
    try:
        assert process.stdout is not None
        yield Site(process.stdout.readline().strip(), home, process.pid)
    finally:
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=120)
        assert process.returncode == 0
        # nothing broke on the way, and open pages do not keep it from ending in good order
        told = [line for line in said.splitlines() if not line.startswith("warning: ")]
        assert told == ["for this browser alone; interrupt to stop"]
