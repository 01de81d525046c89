"""Agents of the structure of the published ones are in order, and those that are complete run."""

from pathlib import Path

import pytest

from kept.core.llm import ModelReply, ToolCall
from kept.recipes.agent_config.compile import compile_agent
from kept.recipes.evaluate.request import Wanted
from kept.testing.server import ModelServer, Seen
from tests.recipes.agent_config.samples import SAMPLES, VARIABLES, write_sample
from tests.recipes.agent_config.test_agent import measured
from tests.ui.cli.tasks import kept

BUILT_IN = "Kept's built-in index is used instead of "


@pytest.fixture(autouse=True)
def variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in VARIABLES:
        monkeypatch.setenv(name, "dummy")
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", "https://dummy.openai.azure.com")
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)


def test_there_are_fifteen():
    assert len(SAMPLES) == 15


@pytest.mark.parametrize("name", SAMPLES)
def test_an_agent_of_a_published_structure_passes_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
):
    write_sample(tmp_path / "it", name)
    monkeypatch.chdir(tmp_path / "it")
    called = kept("check", "agent.yaml")
    assert called.code == 0, called.stderr
    told = [line for line in called.stderr.splitlines() if BUILT_IN in line]
    if name.startswith("financial"):
        assert told == []
    else:
        (line,) = told
        assert "`chromadb` (" in line
        assert ("`opensearch` (`act_search`)" in line) == name.startswith("legal-assistant")


@pytest.mark.parametrize("name", [name for name in SAMPLES if name.endswith("/claude")])
def test_an_agent_with_another_way_in_passes_check_and_runs_with_a_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
):
    """`auth_provider: oauth_token` of two samples: Kept asks with a key, which a run must have."""
    write_sample(tmp_path / "it", name)
    monkeypatch.chdir(tmp_path / "it")
    called = kept("check", "agent.yaml")
    assert "ANTHROPIC_API_KEY, which is not set: set it before a run" in called.stderr
    refused = kept("test", "run", "agent.yaml")
    assert refused.code == 2 and "ANTHROPIC_API_KEY is not set" in refused.stderr
    assert not (tmp_path / "it/.kept").exists()


def look_up(seen: Seen) -> ModelReply | str:
    """Search once, and route the ticket; a judge finds that good."""
    if "Ticket" not in seen.text and not seen.tool_results:
        return '{"score": 10, "reason": "right", "verdicts": [], "claims": []}'
    if not seen.tool_results:
        call = ToolCall("c", "ticket_categories", '{"query": "Invoices, refunds."}')
        return ModelReply("", finish="tool_calls", tool_calls=(call,))
    return '{"category": "billing", "reasoning": "money"}'


@pytest.mark.slow
def test_a_complete_agent_of_a_published_structure_runs_on_the_built_in_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("KEPT_CACHE", str(tmp_path / "cache"))
    path = write_sample(tmp_path / "it", "ticket-routing/openai")
    with ModelServer(look_up) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.v1)
        sweep = measured(compile_agent(path, Wanted()).plan, tmp_path)
        assert any(seen.wire == "embeddings" for seen in server.log)
    for one in sweep.cases:
        (use,) = one.exchanges[0].uses
        assert "Invoices, refunds." in str(use.result)
        assert one.exchanges[0].response == '{"category": "billing", "reasoning": "money"}'


@pytest.mark.slow
def test_check_finds_a_qdrant_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("QDRANT_URL", "http://127.0.0.1:9")
    write_sample(tmp_path / "it", "financial-assistant/openai")
    monkeypatch.chdir(tmp_path / "it")
    called = kept("check", "agent.yaml")
    assert called.code == 0, called.stderr
    assert "tool `archive`: Qdrant at http://127.0.0.1:9 cannot be used: " in called.stderr
    assert "searches fail until it answers" in called.stderr
