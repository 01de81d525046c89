"""The bench still runs; what it measures is nobody's test."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kept.sandbox.capabilities import abilities

ROOT = Path(__file__).parent.parent.parent


def run_bench(*arguments: str) -> str:
    command = [sys.executable, "-m", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_engine_bench_measures_every_arm_and_writes_its_results(tmp_path: Path):
    shown = run_bench("bench.engine", "--quick", "--no-gepa", "--out", str(tmp_path))
    for title in ("Goals", "Instant evaluator", "Evaluator of 50 ms", "Resume"):
        assert f"## {title}\n" in shown
    assert "| kept, 1 proposal in 10 wins" in shown
    assert (tmp_path / "engine.md").read_text(encoding="utf-8").strip() == shown.strip()
    found = json.loads((tmp_path / "engine.json").read_text(encoding="utf-8"))
    assert found["readings"]["Resume"]["kept, 200 steps"][0]["numbers"] == {"repeated": 0}


@pytest.mark.slow
def test_the_start_bench_finds_no_use_of_the_network(tmp_path: Path):
    shown = run_bench("bench.start", "--no-gepa", "--repeats", "1", "--out", str(tmp_path))
    assert "## Starts\n" in shown
    assert "| from kept import optimize" in shown
    assert "FAILED" not in shown


@pytest.mark.slow
@pytest.mark.sandbox
@pytest.mark.skipif(not abilities().walls, reason="no walls here")
def test_the_bench_of_agent_runs_completes_one(tmp_path: Path):
    shown = run_bench("bench.agent_run", "--no-peer", "--repeats", "1", "--out", str(tmp_path))
    assert "| complete (completed), 1 deliverable |" in shown


@pytest.mark.slow
@pytest.mark.sandbox
@pytest.mark.skipif(not abilities().walls, reason="no walls here")
def test_the_bench_of_refinement_runs_three_iterations(tmp_path: Path):
    shown = run_bench("bench.refine", "--no-peer", "--repeats", "1", "--out", str(tmp_path))
    assert "| 3 iterations, plateau |" in shown
    found = json.loads((tmp_path / "refine.json").read_text(encoding="utf-8"))
    assert found["iterations"] == {"kept": 3}


@pytest.mark.slow
def test_the_models_bench_measures_every_arm(tmp_path: Path):
    shown = run_bench("bench.models", "--quick", "--no-openai", "--out", str(tmp_path))
    for arm in ("kept", "kept, streamed", "kept, messages of Anthropic", "bare aiohttp"):
        assert f"| {arm} " in shown
    found = json.loads((tmp_path / "models.json").read_text(encoding="utf-8"))
    assert found["readings"]["16 in flight"]["kept"][0]["rollouts"] > 16


@pytest.mark.slow
@pytest.mark.sandbox
def test_the_walls_bench_runs_a_command_in_every_way(tmp_path: Path):
    shown = run_bench("bench.walls", "--repeats", "1", "--out", str(tmp_path))
    assert "| without walls, 50 files" in shown
    found = json.loads((tmp_path / "walls.json").read_text(encoding="utf-8"))
    assert all(len(row) == 1 for row in found["took"].values())
    assert len(found["goals"]) == (3 if abilities().walls else 1)


@pytest.mark.slow
def test_the_test_run_bench_measures_whole_commands_and_says_that_the_peer_was_left_out(
    tmp_path: Path,
):
    shown = run_bench("bench.test_run", "--quick", "--no-peer", "--out", str(tmp_path))
    for title in ("Goals", "From start to end", "A case more", "24 cases, 8 in flight, 50 ms"):
        assert f"## {title}\n" in shown
    assert "* holodeck: not run" in shown
    found = json.loads((tmp_path / "test-run.json").read_text(encoding="utf-8"))
    took = found["took"]["24 cases, 8 at once, 50 ms a reply"]
    for arm in ("kept", "bare aiohttp"):
        (busy,) = took[arm]
        assert busy["at_once"] == 8
        assert 0.15 <= busy["span"] < busy["wall"]


@pytest.mark.slow
def test_the_test_optimize_bench_measures_whole_commands_and_counts_their_calls(tmp_path: Path):
    shown = run_bench("bench.test_optimize", "--quick", "--no-peer", "--out", str(tmp_path))
    for title in ("Goals", "From start to end", "A rollout more"):
        assert f"## {title}\n" in shown
    assert "* holodeck: not run" in shown
    found = json.loads((tmp_path / "test-optimize.json").read_text(encoding="utf-8"))
    (few,), (whole,) = (took["kept"] for took in found["took"].values())
    assert (few["calls"], whole["calls"]) == (2 * 4, 3 * 4)
    assert 0 < whole["first"] < whole["wall"]


@pytest.mark.slow
def test_the_descent_bench_says_what_was_found(tmp_path: Path):
    shown = run_bench("bench.descent", "--seeds", "1", "--arms", "sigma", "--out", str(tmp_path))
    for title in ("Goals", "Found", "Runs that did not find both"):
        assert f"## {title}\n" in shown
    found = json.loads((tmp_path / "descent.json").read_text(encoding="utf-8"))
    (run,) = found["runs"]["sigma"]
    assert run["trials"] >= 15 + 4
    assert run["loss"] < 0.631


@pytest.mark.nightly
def test_the_bench_of_kills_and_damage_finds_nothing_changed_in_silence(tmp_path: Path):
    run_bench("bench.reliability", "--quick", "--arms", "kept", "--out", str(tmp_path))
    found = json.loads((tmp_path / "reliability.json").read_text(encoding="utf-8"))
    (killed,), (damaged,) = found["killed"].values(), found["damaged"].values()
    assert [run["end"] for run in killed] == ["same"] * 2
    assert not [run for run in damaged if run["end"] not in ("same", "named")]
