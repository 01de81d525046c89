"""A deliverable with planted defects, refined over the test server: what BEST holds is measured.

Attempts are drawn from a pool of better, equal and worse ones. The critic thinks the same of all,
so that only a test of the user's own tells them apart; it is run again by hand.
"""

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from kept.orchestrator.run_folder.read import read_loss
from kept.sandbox.capabilities import abilities
from kept.testing.server import ModelServer
from tests.orchestrator.run_folder.made import synthetic_run
from tests.recipes.refine.test_pool import SEED_WRONG, report
from tests.recipes.refine.world import TASK, Attempted
from tests.ui.cli.tasks import kept
from tests.ui.cli.test_refine import MODEL, Stage

pytestmark = [
    pytest.mark.slow,
    pytest.mark.sandbox,
    pytest.mark.skipif(not abilities().walls, reason="no walls here"),
]

POOL = (0, 1, 2, 3, 3, 4)
"""Planted defects of an attempt; the seed has three."""
COUNT = "print(1 - open('report.md').read().count('is wrong.') / 5)"


def by_hand(folder: Path) -> float:
    done = subprocess.run(
        [sys.executable, "-c", COUNT], cwd=folder, capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def weighed(sums: float) -> float:
    """The evaluation of a run with this result of the test, all else being as it is here."""
    return 5 * sums / 10 + 5 / 10


@pytest.mark.parametrize("draw", [1, 5, 11])
def test_best_is_better_by_its_own_eval_run_again_by_hand(
    here: Path, monkeypatch: pytest.MonkeyPatch, draw: int
):
    chance = random.Random(draw)
    drawn = [chance.choice(POOL) for _ in range(4)]
    score = weighed(1 - SEED_WRONG / 5)
    judged = {"score": 0.8, "defects": [{"summary": "sums are wrong", "severity": "high"}]}
    models = {"manager": MODEL}
    seed = synthetic_run(
        here / "seed", task=TASK, critique=judged, eval={"score": score}, models=models
    )
    (seed / "FINAL" / "out.md").unlink()
    (seed / "FINAL" / "report.md").write_text(report(SEED_WRONG))
    command = json.dumps(["python3", "-c", COUNT])
    (here / "run.yaml").write_text(f"metrics:\n  sums: {{command: {command}}}\n")
    stage = Stage([Attempted(0.8, report(wrong), defects=["still wrong"]) for wrong in drawn])
    with ModelServer(stage) as server:
        monkeypatch.setenv("OPENAI_COMPATIBLE_BASE_URL", server.v1)
        words = ("--config", "run.yaml", "--iterations", "4", "--json", "-q")
        called = kept("refine", str(seed), *words)
    assert called.code in (0, 1), called.stderr
    (path,) = (seed / "refinement_sessions").iterdir()
    session = json.loads(path.read_text())
    ran = drawn[: len(session["iterations"])]
    losses = [row["loss"] for row in session["iterations"]]
    assert session["seed_loss"] == pytest.approx(read_loss(seed).total, abs=1e-6)
    gained = min(losses) < session["seed_loss"]
    assert called.code == (0 if gained else 1)
    assert gained == (min(ran) < SEED_WRONG), (ran, losses)
    assert (seed / "BEST").exists() == gained
    if gained:
        # one with the fewest defects, by the eval itself and not by what a run says of it
        assert ran[session["best_iter"] - 1] == min(ran)
        assert by_hand(seed / "BEST") == 1 - min(ran) / 5 > by_hand(seed / "FINAL")
        manifest = json.loads((seed / "BEST" / "manifest.json").read_text())
        assert manifest["best_loss"] == min(losses)
        assert manifest["seed_loss"] == session["seed_loss"]
        won = Path(manifest["winning_run_dir"])
        assert read_loss(won).total == pytest.approx(min(losses), abs=1e-6)
        told = json.loads((won / "run_completion.json").read_text())
        assert told["evaluation"]["per_metric"]["sums"] == by_hand(seed / "BEST")


def test_a_metric_that_has_the_name_of_a_usual_one_is_refused(here: Path):
    seed = synthetic_run(here / "seed", task=TASK, models={"manager": MODEL})
    (here / "run.yaml").write_text("metrics: {confidence: {command: [ls]}}\n")
    called = kept("refine", str(seed), "--config", "run.yaml")
    assert called.code == 2
    assert "give yours another name" in called.stderr
