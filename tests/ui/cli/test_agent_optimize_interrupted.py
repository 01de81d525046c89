"""`kept agent optimize` interrupted and resumed."""

import signal
import time
from pathlib import Path

import pytest

from kept.testing.server import ModelServer
from tests.recipes.killing import kept
from tests.recipes.test_kills import COMMANDS

pytestmark = pytest.mark.kill

WHOLE = 5 * 6 + 2 * 6
"""Answers of the whole run: six for each run of the task, of which two are shown and three decide,
and six for each update, one for each artifact."""


def test_an_optimization_that_was_interrupted_asks_nothing_twice(tmp_path: Path):
    with ModelServer(COMMANDS["agent optimize"].answers(), latency=0.03) as server:
        words = COMMANDS["agent optimize"].write(tmp_path, server.v1)
        where = {"OPENAI_COMPATIBLE_BASE_URL": server.v1}
        process = kept(tmp_path, *words, **where)
        while process.poll() is None and len(server.answered) < 15:
            time.sleep(0.005)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=120)
        assert process.returncode == 130, err
        assert len(server.answered) < WHOLE
        process = kept(tmp_path, "resume", **where)
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        # what was in flight was waited for
        assert len(server.answered) == WHOLE, out
