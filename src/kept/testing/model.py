"""A model that says what it was told to say."""

import asyncio
from collections.abc import Callable, Sequence

from kept.core.model import ModelReply, ModelRequest
from kept.core.rollout import Failure, Usage

Line = str | ModelReply | Failure
"""One reply of a script; a plain text is a reply that cost one call."""


class ScriptedModel:
    """Replies from a list, in order, or from a function of the request."""

    def __init__(
        self,
        script: Sequence[Line] | Callable[[ModelRequest], Line],
        *,
        name: str = "scripted",
        usage: Usage | None = None,
    ) -> None:
        self.name = name
        self._script = script
        self._usage = usage or Usage(calls=1, tokens_in=10, tokens_out=5)
        self._next = 0
        self._faults: list[Failure] = []
        self.requests: list[ModelRequest] = []
        """Everything that was asked, failed calls included."""

    @property
    def calls(self) -> int:
        """How often it was asked."""
        return len(self.requests)

    def fail(self, failure: Failure, times: int = 1) -> None:
        """Have the next calls fail; the script goes on behind them."""
        self._faults.extend([failure] * times)

    async def complete(self, request: ModelRequest) -> ModelReply | Failure:
        """The next reply of the script."""
        self.requests.append(request)
        # a real model never answers within the same turn of the event loop
        await asyncio.sleep(0)
        if self._faults:
            return self._faults.pop(0)
        line = self._line(request)
        return ModelReply(line, self._usage) if isinstance(line, str) else line

    def _line(self, request: ModelRequest) -> Line:
        if callable(self._script):
            return self._script(request)
        if self._next >= len(self._script):
            what = f"the script ends after {len(self._script)} replies"
            return Failure("harness", "infrastructure", what)
        self._next += 1
        return self._script[self._next - 1]
