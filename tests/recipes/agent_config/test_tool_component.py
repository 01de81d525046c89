"""A tool of another package in an agent.yaml: validated with its lines, opened, and used."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Literal

import pytest

from kept import Scope, SpecError
from kept.engine.replay import JournalScope
from kept.extend import Text, ToolAnswer, Toolbox, ToolComponent, ToolOffer, ToolSpec
from kept.recipes.agent_config.spec.read import ParsedAgent, read_agent
from kept.recipes.agent_config.spec.tools import TOOLS
from kept.testing import MemoryJournal

AGENT = """\
name: shouter
model: {provider: scripted, name: replies.jsonl}
instructions: {inline: "Shout."}
tools:
  - {type: shout, name: shout, description: Shouts a text, mark: "!"}
evaluations: {metrics: [{type: standard, metric: equality}]}
test_cases: [{input: a, ground_truth: A!}]
"""


class ShoutSpec(ToolSpec):
    type: Literal["shout"]
    mark: Text


@dataclass
class Shout:
    mark: str
    description: str
    open: bool = True

    @property
    def offer(self) -> ToolOffer:
        return ToolOffer("shout", self.description, {"type": "object"})

    async def use(self, arguments: Mapping[str, object], scope: Scope) -> ToolAnswer:
        return ToolAnswer(f"{arguments['text']}{self.mark}".upper())

    async def close(self) -> None:
        self.open = False


class ShoutComponent(ToolComponent[ShoutSpec]):
    Spec = ShoutSpec

    async def open(self, spec: ShoutSpec, toolbox: Toolbox, agent: ParsedAgent) -> Sequence[Shout]:
        return (toolbox.shared("shout", lambda: Shout(spec.mark, spec.description)),)


@pytest.fixture(autouse=True)
def a_package(monkeypatch: pytest.MonkeyPatch):
    """The entry point that such a package has."""
    point = EntryPoint("shout", f"{__name__}:ShoutComponent", "kept.tools")
    monkeypatch.setattr(TOOLS, "_others", {"shout": point}, raising=False)
    monkeypatch.setattr(TOOLS, "_loaded", {})


def written(folder: Path, text: str = AGENT) -> Path:
    (folder / "replies.jsonl").write_text("{}", encoding="utf-8")
    (folder / "agent.yaml").write_text(text, encoding="utf-8")
    return folder / "agent.yaml"


def test_the_tool_of_a_package_is_opened_once_and_closed(tmp_path: Path):
    agent = read_agent(written(tmp_path)).agent

    async def used() -> tuple[str, Shout]:
        toolbox = Toolbox(tmp_path)
        found = await toolbox.tools(agent)
        again = await toolbox.tools(agent)
        assert isinstance(found, tuple) and isinstance(again, tuple)
        tool = found[0]
        assert isinstance(tool, Shout) and again[0] is tool
        scope = JournalScope(MemoryJournal(), "rollout/a/decide/b/0")
        answer = await tool.use({"text": "a"}, scope)
        await toolbox.close()
        return answer.text, tool

    text, tool = asyncio.run(used())
    assert text == "A!"
    assert not tool.open


def test_what_is_wrong_with_such_a_tool_is_told_at_its_line(tmp_path: Path):
    path = written(tmp_path, AGENT.replace("mark:", "mrk:"))
    with pytest.raises(SpecError) as caught:
        read_agent(path)
    told = {(one.where.rpartition(":")[2], one.path, one.message) for one in caught.value.problems}
    assert ("5", "tools[0].mark", "missing") in told
    assert ("5", "tools[0].mrk", "unknown key") in told
