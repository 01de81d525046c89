"""Kill -9 in the middle of measuring an agent: its temporary folders are removed later."""

import os
from pathlib import Path

import pytest

from kept.sandbox.temp_dirs import own
from kept.testing.server import ModelServer
from tests.recipes.agent_config.world import answer, write_agent
from tests.recipes.killing import kept, killed_at

pytestmark = pytest.mark.kill

CASES = 100
"""Of two turns and three calls each."""


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
