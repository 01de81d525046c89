"""`kept agent optimize` killed with SIGKILL in an epoch, and resumed: nothing lost."""

import signal
import time
from pathlib import Path

import pytest

from kept.agents.texts import own_artifacts
from kept.store.prompt_registry import PromptRegistry
from kept.testing.server import ModelServer
from tests.engine.cutting import calls, rows
from tests.recipes.killing import kept, killed_at
from tests.recipes.suite.world import GOOD, HARMFUL, Cast, in_order, write_suite

pytestmark = pytest.mark.kill

WHOLE = 5 * 6 + 2 * 6
"""Answers of the whole run: six for each run of the task, of which two are shown and three decide,
and six for each update, one for each artifact."""

AT_ONCE = 6
"""Requests that may have been in flight: one for each artifact."""


def written(folder: Path) -> Cast:
    """A suite of one task in a folder, and those who answer it over HTTP."""
    suite = write_suite(folder, "gate: rollback\nepochs: 2\n", tasks=("may",))
    models = "walls: off, models: {manager: openai_compatible/m}"
    suite.write_text(suite.read_text().replace("walls: off", models))
    return Cast(proposes=in_order(GOOD[0], HARMFUL[0]))


@pytest.mark.parametrize("answers", [9, 34])
def test_an_optimization_that_was_killed_goes_on_where_it_was(tmp_path: Path, answers: int):
    cast = written(tmp_path)
    with ModelServer(cast.of_server, latency=0.03) as server:
        where = {"OPENAI_COMPATIBLE_BASE_URL": server.v1}
        killed_at(kept(tmp_path, "agent", "optimize", "suite.yaml", **where), server, answers)
        (folder,) = (tmp_path / ".kept" / "runs").iterdir()
        heard = calls(rows(folder))
        process = kept(tmp_path, "resume", **where)
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        assert WHOLE <= len(server.answered) <= WHOLE + AT_ONCE, out
    after = calls(rows(folder))
    assert max(after.values()) == 1, "a call whose reply was written was made again"
    assert heard.keys() <= after.keys()
    registry = PromptRegistry(tmp_path / ".kept" / "artifacts.db", own_artifacts())
    assert [one.active for one in registry.versions("worker_pitfalls")] == [False, True, False]
    assert len(registry.epochs()) == 2
    assert "worker_pitfalls version 1: kept" in out
    assert "worker_pitfalls version 2: rolled back" in out


def test_an_optimization_that_was_interrupted_asks_nothing_twice(tmp_path: Path):
    cast = written(tmp_path)
    with ModelServer(cast.of_server, latency=0.03) as server:
        where = {"OPENAI_COMPATIBLE_BASE_URL": server.v1}
        process = kept(tmp_path, "agent", "optimize", "suite.yaml", **where)
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
