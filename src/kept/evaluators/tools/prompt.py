"""A prompt as tool: a template is filled in, a model is asked, and its answer is the tool's."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kept.core.model import Message, ModelRequest, ToolOffer
from kept.core.ports import Model, Scope
from kept.core.rollout import Failure
from kept.core.tool import ToolAnswer
from kept.errors import SetupError
from kept.evaluators.tools.schema import plain, unsound
from kept.evaluators.tools.using import cut
from kept.models.ask import ask
from kept.models.structured_output import problem_with

_BLANK = re.compile(r"\{\{\s*(\w+)\s*\}\}")


@dataclass(frozen=True, slots=True)
class PromptConfig:
    """What is asked, and what a model is told of it."""

    name: str
    template: str
    """With `{{name}}` where a parameter goes."""
    description: str = ""
    parameters: Mapping[str, Mapping[str, object]] | None = None
    """What is said of its parameters, by name; where nothing is, they are texts."""
    temperature: float | None = None
    max_tokens: int | None = None


def read_template(file: Path) -> str:
    """A template that has a file of its own."""
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SetupError(f"the template {file} cannot be read: {error}") from error


@dataclass(frozen=True, slots=True)
class PromptTool:
    """Asks a model. What it asks and what it is answered is journalled as any question is."""

    config: PromptConfig
    model: Model

    def __post_init__(self) -> None:
        if wrong := unsound(self.offer.parameters):
            raise SetupError(f"the tool `{self.config.name}`: {wrong}")

    @property
    def offer(self) -> ToolOffer:
        """What a model is told of it."""
        config = self.config
        said = config.parameters or {}
        names = tuple(dict.fromkeys((*_BLANK.findall(config.template), *said)))
        return ToolOffer(config.name, config.description, plain(said, names))

    async def use(self, arguments: Mapping[str, object], scope: Scope) -> ToolAnswer | Failure:
        """Ask once."""
        if wrong := problem_with(dict(arguments), self.offer.parameters):
            return ToolAnswer(f"the arguments are wrong, {wrong}", wrong=True)
        config = self.config
        message = Message("user", self._filled(arguments))
        request = ModelRequest(
            (message,), temperature=config.temperature, max_tokens=config.max_tokens
        )
        reply = await ask(scope, self.model, request)
        if isinstance(reply, Failure):
            mends = reply.blame == "candidate"
            return ToolAnswer(cut(reply.message), wrong=True) if mends else reply
        if reply.finish == "refused":
            return ToolAnswer(cut(reply.text) or "it would not answer that", wrong=True)
        return ToolAnswer(cut(reply.text), usage=reply.usage, seconds=reply.seconds)

    def _filled(self, arguments: Mapping[str, object]) -> str:
        said = self.config.parameters or {}

        def value(match: re.Match[str]) -> str:
            name = match[1]
            return str(arguments.get(name, said.get(name, {}).get("default", "")))

        # what is filled in is not looked at again, whatever it holds
        return _BLANK.sub(value, self.config.template)
