"""The page about agent.yaml says what is true."""

from pathlib import Path

import pytest
from pydantic import BaseModel

from kept.spec.agent import agent, carried, cases, config, llm, metrics, tools
from kept.spec.agent.read import read_agent
from tests.docs_pages import read_blocks
from tests.spec.agent.agents import write

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "agent-yaml.md"
OURS = {("ArgumentSpec", "kind"), ("ArgumentSpec", "value")}
"""Fields that no file spells."""


def models() -> list[type[BaseModel]]:
    modules = (agent, carried, cases, config, llm, metrics, tools)
    found = [value for module in modules for value in vars(module).values()]
    return [m for m in found if isinstance(m, type) and issubclass(m, BaseModel)]


def test_the_page_names_every_key():
    page = PAGE.read_text()
    keys = {(m.__name__, f.alias or n) for m in models() for n, f in m.model_fields.items()} - OURS
    assert len(keys) > 150
    assert [f"{model}.{key}" for model, key in sorted(keys) if f"`{key}`" not in page] == []


def test_the_agent_on_the_page_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("OPENAI_API_KEY", "a-key-of-mine")
    (block,) = read_blocks("page.md", PAGE.read_text())
    files = {
        "agent.yaml": block.text,
        "prompts/ledger.md": "Use tools.\n",
        "tools/arithmetic.py": "",
        "reports/a.md": "",
    }
    read = read_agent(write(tmp_path, files))
    assert read.warnings == ()
    assert [len(case.exchanges) for case in read.cases] == [2]
