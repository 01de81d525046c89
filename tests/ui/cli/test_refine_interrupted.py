"""`kept refine` interrupted and resumed."""

import signal
import time
from pathlib import Path

import pytest

from kept.sandbox.capabilities import abilities
from kept.testing.server import ModelServer
from tests.orchestrator.run_folder.made import synthetic_run
from tests.recipes.killing import kept
from tests.recipes.refine.world import TASK, scores
from tests.ui.cli.test_refine import MODEL, Stage

pytestmark = [
    pytest.mark.kill,
    pytest.mark.sandbox,
    pytest.mark.skipif(not abilities().walls, reason="no walls here"),
]


@pytest.mark.parametrize("answers", [2, 4])
def test_a_refinement_that_was_interrupted_is_nobodys_crash_and_goes_on(
    tmp_path: Path, answers: int
):
    seed = synthetic_run(tmp_path / "seed", task=TASK, models={"manager": MODEL})
    with ModelServer(Stage(scores(0.7)), latency=0.05) as server:
        where = {"OPENAI_COMPATIBLE_BASE_URL": server.v1}
        process = kept(tmp_path, "refine", str(seed), "--iterations", "1", **where)
        while process.poll() is None and len(server.answered) < answers:
            time.sleep(0.005)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        assert process.returncode == 130, err
        process = kept(tmp_path, "resume", **where)
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        assert "crash" not in out + err
        # what was answered is not asked for again, and what was in flight was waited for
        assert len(server.answered) == 6, out
    assert (seed / "BEST" / "report.md").read_text() == "# Report\n\nVersion 1.\n"
