"""A database of an agent.yaml reaches the index with its secrets filled in."""

from pathlib import Path

import pytest

from kept.recipes.agent_config.spec.read import read_agent
from kept.recipes.agent_config.spec.tools import VectorstoreToolSpec
from kept.recipes.agent_config.tools import VectorstoreToolComponent
from tests.recipes.agent_config.spec.agents import write

AGENT = """\
name: x
model: {provider: openai, name: y}
instructions: {inline: z}
tools:
- type: vectorstore
  name: shelf
  description: d
  source: a.md
  database:
    provider: qdrant
    connection_string: https://${SHELF_HOST}:6333
    api_key: ${SHELF_KEY}
"""


def test_whoever_connects_to_a_database_gets_its_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SHELF_HOST", "shelf.example")
    monkeypatch.setenv("SHELF_KEY", "a-key-of-the-shelf")
    agent = read_agent(write(tmp_path, {"agent.yaml": AGENT, "a.md": "x"})).agent
    assert "a-key-of-the-shelf" not in repr(agent)
    (tool,) = agent.spec.tools
    assert isinstance(tool, VectorstoreToolSpec)
    database = VectorstoreToolComponent().index(tool, tmp_path).database
    assert database is not None
    assert database.connection_string == "https://shelf.example:6333"
    assert database.options == {"api_key": "a-key-of-the-shelf"}
