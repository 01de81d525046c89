"""A tool that answers as it is told to."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from kept.core.model import ToolOffer
from kept.core.ports import Scope
from kept.core.rollout import Failure
from kept.core.tool import ToolAnswer

Answer = Callable[[Mapping[str, object]], Awaitable[ToolAnswer | Failure]]

_ANYTHING: Mapping[str, object] = {"type": "object", "properties": {}}


@dataclass(frozen=True, slots=True)
class ScriptedTool:
    """Implements `kept.core.ports.Tool` by a function of the arguments, and counts its uses."""

    name: str
    answer: str | Answer
    """The text that it answers with, or a function that makes the answer."""
    description: str = ""
    parameters: Mapping[str, object] = field(default_factory=lambda: dict(_ANYTHING))
    used: list[Mapping[str, object]] = field(default_factory=list[Mapping[str, object]])
    """The arguments of every use that was not served from the journal."""

    @property
    def offer(self) -> ToolOffer:
        """What a model is told of it."""
        return ToolOffer(self.name, self.description, self.parameters)

    async def use(self, arguments: Mapping[str, object], scope: Scope) -> ToolAnswer | Failure:
        """Answer, and write it down."""

        async def do() -> ToolAnswer | Failure:
            self.used.append(dict(arguments))
            if isinstance(self.answer, str):
                return ToolAnswer(self.answer)
            return await self.answer(arguments)

        request = {"tool": self.name, "arguments": dict(arguments)}
        return await scope.call(request, ToolAnswer, do, 0.0)
