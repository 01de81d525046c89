"""The page about agent.yaml says what is true."""

import re
from dataclasses import fields
from pathlib import Path
from types import ModuleType

import pytest
from pydantic import BaseModel

from kept.recipes.agent_config.spec import agent, cases, common, config, metrics, optimizer, tools
from kept.recipes.agent_config.spec.read import read_agent
from tests.docs_pages import read_blocks
from tests.recipes.agent_config.spec.agents import write

PAGE = Path(__file__).parents[4] / "docs" / "reference" / "agent-yaml.md"
TUNING = PAGE.with_name("optimizer.md")
OURS = {("ArgumentSpec", "kind"), ("ArgumentSpec", "value")}
"""Fields that no file spells."""


def models(*modules: ModuleType) -> list[type[BaseModel]]:
    found = [value for module in modules for value in vars(module).values()]
    classes = [m for m in found if isinstance(m, type) and issubclass(m, BaseModel)]
    # what a module imports is told by the page of its own
    names = {module.__name__ for module in modules}
    return [m for m in classes if m.__module__ in names]


def keys_of(*modules: ModuleType) -> set[tuple[str, str]]:
    known = [(m, n, f) for m in models(*modules) for n, f in m.model_fields.items()]
    return {(m.__name__, f.alias or n) for m, n, f in known} - OURS


def test_the_page_names_every_key():
    page = PAGE.read_text()
    keys = keys_of(agent, cases, config, common, metrics, tools)
    assert len(keys) > 150
    assert [f"{model}.{key}" for model, key in sorted(keys) if f"`{key}`" not in page] == []


def test_the_page_about_tuning_names_every_key():
    told = re.findall(r"\w+", " ".join(re.findall(r"`([^`]+)`", TUNING.read_text())))
    keys = keys_of(optimizer)
    assert len(keys) > 40
    assert [f"{model}.{key}" for model, key in sorted(keys) if key not in told] == []


@pytest.mark.parametrize("page", [PAGE, TUNING], ids=lambda page: page.name)
def test_the_figures_behind_keys_are_their_defaults(page: Path):
    found = models(agent, cases, config, common, metrics, optimizer, tools)
    defaults = {(f.alias or n, f.default) for m in found for n, f in m.model_fields.items()}
    defaults |= {(f.name, f.default) for f in fields(optimizer.OptimizerSpec)}
    plain = {"name": "a", "model": {"provider": "openai", "name": "b"}}
    said = agent.AgentSpec.model_validate({**plain, "instructions": {"inline": "c"}})
    defaults.add(("max_turns", said.max_turns))
    told = re.findall(r"`(\w+)` \(([\d.e-]+)[),]", page.read_text())
    assert len(told) >= 3
    assert [(key, value) for key, value in told if (key, float(value)) not in defaults] == []


def test_the_agent_on_the_page_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("OPENAI_API_KEY", "a-key-of-mine")
    (block,) = read_blocks("page.md", PAGE.read_text())
    files = {
        "agent.yaml": block.text,
        "prompts/ledger.md": "Use tools.\n",
        "evaluators/tools/arithmetic.py": "",
        "reports/a.md": "",
    }
    read = read_agent(write(tmp_path, files))
    assert read.warnings == ()
    assert [len(case.exchanges) for case in read.cases] == [2]
