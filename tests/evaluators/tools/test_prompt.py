import asyncio
from collections.abc import Mapping

import pytest

from kept.core.llm import ModelReply, ModelRequest, ToolAnswer
from kept.core.ports import Tool
from kept.core.rollout import Failure, Usage
from kept.engine.replay import JournalScope
from kept.errors import SetupError
from kept.evaluators.tools.function import PromptConfig, PromptTool
from kept.testing import MemoryJournal, ScriptedModel, ToolSuite

TEMPLATE = "Say in {{ language }}, in {{tone}} words: {{text}}"
PARAMETERS: Mapping[str, Mapping[str, object]] = {
    "language": {"type": "str", "enum": ["German", "French"]},
    "tone": {"default": "plain"},
}
CONFIG = PromptConfig("translate", TEMPLATE, "Translate.", PARAMETERS, 0.0, 50)
GIVEN = {"language": "German", "text": "hello {{tone}}"}


def said(request: ModelRequest) -> str:
    return request.messages[-1].text.upper()


def used(tool: Tool, arguments: Mapping[str, object]) -> ToolAnswer | Failure:
    return asyncio.run(tool.use(arguments, JournalScope(MemoryJournal(), "scope")))


class Waits(ScriptedModel):
    async def complete(self, request: ModelRequest) -> ModelReply | Failure:
        await asyncio.sleep(60)
        return ModelReply("late")


class TestPromptTool(ToolSuite):
    async def open_tool(self) -> Tool:
        return PromptTool(CONFIG, ScriptedModel(said))

    async def open_hanging_tool(self) -> Tool | None:
        return PromptTool(CONFIG, Waits(said))

    def arguments(self) -> Mapping[str, object]:
        return dict(GIVEN)

    def wrong_arguments(self) -> Mapping[str, object] | None:
        return {"language": "Latin"}


def test_a_template_is_filled_in_once_and_its_answer_is_told():
    model = ScriptedModel(said, usage=Usage(1, 7, 3))
    answer = used(PromptTool(CONFIG, model), GIVEN)
    assert isinstance(answer, ToolAnswer)
    assert answer.text == "SAY IN GERMAN, IN PLAIN WORDS: HELLO {{TONE}}"
    assert answer.usage == Usage(1, 7, 3)
    (request,) = model.requests
    assert (request.temperature, request.max_tokens) == (0.0, 50)


def test_the_blanks_of_a_template_are_its_parameters():
    offer = PromptTool(CONFIG, ScriptedModel(said)).offer
    assert offer.parameters == {
        "type": "object",
        "properties": {
            "language": {"type": "string", "enum": ["German", "French"]},
            "tone": {"type": "string", "default": "plain"},
            "text": {"type": "string"},
        },
        "required": ["language", "text"],
        "additionalProperties": False,
    }


def test_an_outage_of_its_model_is_a_failure_and_a_refusal_is_told():
    model = ScriptedModel([ModelReply("no", finish="refused")])
    model.fail(Failure("server", "infrastructure", "away"))
    tool = PromptTool(CONFIG, model)
    away, refused = used(tool, GIVEN), used(tool, GIVEN)
    assert isinstance(away, Failure) and away.message == "away"
    assert refused == ToolAnswer("no", wrong=True)


def test_what_its_model_cannot_take_is_told():
    model = ScriptedModel([Failure("context", "candidate", "that is too long")])
    assert used(PromptTool(CONFIG, model), GIVEN) == ToolAnswer("that is too long", wrong=True)


def test_parameters_that_are_no_schema_are_refused_at_once():
    config = PromptConfig("ask", "{{a}}", parameters={"a": {"type": "scroll"}})
    with pytest.raises(SetupError, match="the tool `ask`: its `parameters` are no JSON schema"):
        PromptTool(config, ScriptedModel(said))
