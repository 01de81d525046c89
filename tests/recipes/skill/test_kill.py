"""Kill -9 at every stage of a step and in each thing that an epoch ends with."""

import json
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kept.store import wire
from kept.testing.server import ModelServer, Seen
from tests.engine.cutting import calls, rows
from tests.recipes.killing import kept
from tests.recipes.skill import world

pytestmark = pytest.mark.kill

WORKERS, ANALYSTS = 6, 16
MORE = (
    "evaluation.gate=selection",
    "optimizer.use_meta_reflect=true",
    "optimizer.slow_update_samples=5",
    "optimizer.use_skill_aware_reflection=true",
    "gradient.use_deep_reflect=true",
)
STAGES = (
    *("student", "probe_instruction", "failure_summary", "from", "selected_indices", "gate"),
    *("appendix", "meta_summary", "student", "failure_summary", "slow_update_content"),
    *("meta_skill_content", "meta_summary", "gate"),
)
"""What the last request was for, before each kill."""


def stages_of(seen: Seen) -> set[str]:
    """What a request is for: a key that its reply must have, or the student's.

    A reminder in the skill of a student is on trial, or was kept.
    """
    if seen.model == "student":
        return {"student", "appendix"} if "Remember: " in seen.lines[0].text else {"student"}
    wanted = json.dumps(seen.body["response_format"])
    known = ("probe_instruction", "failure_summary", "success_patterns", '"from"')
    known += ("selected_indices", "slow_update_content", "meta_skill_content", "meta_summary")
    return {next(name.strip('"') for name in known if name in wanted)}


def kill_at(process: "subprocess.Popen[str]", server: ModelServer, stage: str) -> None:
    """Kill it when a request of this stage has come; the gate's is the student's after a choice."""
    start = len(server.log)
    while process.poll() is None:
        fresh = [stages_of(seen) for seen in server.log[start:]]
        if stage == "gate":
            chosen = next((n for n, one in enumerate(fresh) if "student" not in one), len(fresh))
            if sum("student" in one for one in fresh[chosen + 1 :]) > 3:
                break
        elif any(stage in one for one in fresh):
            break
        time.sleep(0.003)
    process.send_signal(signal.SIGKILL)
    _, told = process.communicate(timeout=120)
    assert process.returncode == -signal.SIGKILL, f"it ended before {stage}: {told}"


def result(folder: Path) -> Any:
    """What a run came to, without clocks and what was done in vain."""
    out = folder / "out"
    history = json.loads((out / "history.json").read_text())
    for row in history:
        del row["timing"], row["usage"]
    files = sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file())
    best, state = (out / "best_skill.md").read_text(), (out / "runtime_state.json").read_text()
    return history, files, best, state


def test_a_run_that_is_killed_at_every_stage_comes_to_the_same_end(tmp_path: Path):
    with ModelServer(world.searchqa_answer, latency=0.01) as server:
        words = world.write_searchqa(tmp_path / "whole", server.v1, *MORE)
        whole = kept(tmp_path / "whole", *words)
        _, err = whole.communicate(timeout=120)
        assert whole.returncode == 0, err
        asked = len(server.log)
        words = world.write_searchqa(tmp_path / "cut", server.v1, *MORE)
        kill_at(kept(tmp_path / "cut", *words), server, STAGES[0])
        for stage in STAGES[1:]:
            kill_at(kept(tmp_path / "cut", "resume", "-q"), server, stage)
        last = kept(tmp_path / "cut", "resume", "-q")
        out, err = last.communicate(timeout=120)
        log = server.log[asked:]
    assert last.returncode == 0, out + err
    assert result(tmp_path / "cut") == result(tmp_path / "whole")
    (run,) = (tmp_path / "cut" / ".kept" / "runs").iterdir()
    lines = rows(run)
    pairs = Counter(row.entry()[0] for row in lines if isinstance(row, wire.RolloutLine))
    assert len(pairs) >= 200 and max(pairs.values()) == 1
    assert max(calls(lines).values()) == 1, "a call whose reply was written was made again"
    # what was under way at a kill may have been answered to nobody
    again = sum(n - 1 for n in Counter(str(sorted(seen.body.items())) for seen in log).values())
    assert again <= len(STAGES) * (WORKERS + ANALYSTS)
    assert len(log) - again == asked, "and nothing else was asked"
