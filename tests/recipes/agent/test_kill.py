"""Kill -9 in the middle of measuring an agent: nothing that was answered is asked again."""

import os
from collections import Counter
from pathlib import Path

import pytest

from kept.sandbox.scratch import own
from kept.store import wire
from kept.testing.server import ModelServer
from tests.engine.cutting import calls, rows
from tests.recipes.agent.world import answer, write_agent
from tests.recipes.killing import kept, killed_at

pytestmark = pytest.mark.kill

CASES = 100
"""Of two turns and three calls each."""
WORKERS = 8


def test_a_killed_run_goes_on_and_asks_nothing_twice(tmp_path: Path):
    with ModelServer(answer, latency=0.01) as server:
        write_agent(tmp_path, server.v1, CASES)
        words = ("eval", "agent.yaml", "--repeats", "2", "-q", "--workers", str(WORKERS))
        killed_at(kept(tmp_path, *words), server, 150)
        killed_at(kept(tmp_path, "resume", "-q"), server, 330)
        last = kept(tmp_path, "resume", "-q")
        out, err = last.communicate(timeout=120)
        asked = [f"{seen.body['messages']} {seen.body.get('seed')}" for seen in server.answered]
    assert last.returncode == 1, err
    assert "132 of 200 rollouts pass, 68 fail" in out
    (run,) = (tmp_path / ".kept" / "runs").iterdir()
    lines = rows(run)
    assert max(calls(lines).values()) == 1
    pairs = Counter(row.entry()[0] for row in lines if isinstance(row, wire.RolloutLine))
    assert len(pairs) == 200 and max(pairs.values()) == 1
    # what was under way at a kill may have been answered to nobody
    again = sum(n - 1 for n in Counter(asked).values())
    assert again <= 2 * WORKERS


def test_what_a_killed_run_left_in_tmp_is_gone_with_the_next_and_nothing_else(tmp_path: Path):
    """Where its function tools and its graders had their scratch folders."""
    temporary = tmp_path / "tmp"
    stays = {temporary / f"kept-serve-{name}" for name in ("unmarked", "ours")}
    for folder in stays:
        folder.mkdir(parents=True)
    owned = own(temporary / "kept-serve-ours")
    with ModelServer(answer, latency=0.01) as server:
        agent = write_agent(tmp_path / "agent", server.v1, CASES).parent
        words = ("eval", "agent.yaml", "-q", "--workers", "2")
        killed_at(kept(agent, *words, TMPDIR=str(temporary)), server, 20)
        assert set(temporary.glob("kept-serve-*")) > stays, "it had its tool open"
        last = kept(agent, *words, "-n", "3", TMPDIR=str(temporary))
        _, err = last.communicate(timeout=60)
    os.close(owned)
    assert last.returncode == 1, err
    assert set(temporary.iterdir()) == stays
