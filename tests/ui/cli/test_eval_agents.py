"""`kept eval` of a skill whose student is an agent CLI, with the real CLIs."""

import json
from pathlib import Path

import pytest

from kept.sandbox.capabilities import abilities
from kept.testing.server import ModelServer
from tests.sandbox.coding_agents import worlds
from tests.ui.cli.tasks import kept
from tests.ui.cli.test_eval_skill import words as searchqa_words

pytestmark = [
    pytest.mark.agents,
    pytest.mark.slow,
    pytest.mark.sandbox,
    pytest.mark.usefixtures("agent_clis"),
    pytest.mark.skipif(not abilities().walls, reason="no walls here"),
]


@pytest.mark.parametrize("backend", ["codex_exec", "claude_code_exec"])
def test_an_exec_student_is_measured_by_its_real_cli(
    here: Path, backend: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-none")
    command = "echo what is asked"
    replies = worlds.script(worlds.shell(backend, command), "<answer>word0</answer>")
    with ModelServer(replies) as server:
        config = worlds.config(backend, server)
        given = searchqa_words(here, server, "--limit", "2", "--json")
        given = [word for word in given if not word.startswith("model.target=")]
        target = f"{{provider: {config.provider}, model: {config.model}, "
        target += f"base_url: '{config.base_url}'}}"
        called = kept(*given, f"model.target={target}", f"model.student_backend={backend}")
    assert called.code == 0, called.stderr
    rows = json.loads(called.stdout)["results"]
    assert [row["agent_response"] for row in rows] == ["<answer>word0</answer>"] * 2
    used = rows[0]["tool_invocations"][0]
    assert used["name"] == "command" and command in used["args"]["command"]
    assert kept("show", "last", rows[0]["test_name"]).code == 0
