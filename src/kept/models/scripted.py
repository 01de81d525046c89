"""Scripted model for tests and demos: replies from a list, a function or a file."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from kept.core.llm import Finish, ModelReply, ModelRequest, ToolCall
from kept.core.rollout import Failure, Usage
from kept.core.text import are, count, one_line
from kept.errors import SetupError
from kept.models.prices import FREE_OF_CHARGE, Rates, declared
from kept.models.protocol import Taken
from kept.models.providers import ModelConfig

Line = str | ModelReply | Failure
"""One reply of a script; a plain text is a reply that costs one call."""


class ScriptedModel:
    """Replies from a list, in order, or from a function of the request."""

    def __init__(
        self,
        script: Sequence[Line] | Callable[[ModelRequest], Line],
        *,
        name: str = "scripted",
        usage: Usage | None = None,
        worst: float | Callable[[ModelRequest], float] | None = None,
    ) -> None:
        self.name = name
        self._script = script
        self._usage = usage or Usage(calls=1, tokens_in=10, tokens_out=5)
        self._worst = worst
        self._next = 0
        self._faults: list[Failure] = []
        self.requests: list[ModelRequest] = []
        """All requests, including those that failed."""

    @property
    def calls(self) -> int:
        """Number of requests so far."""
        return len(self.requests)

    def worst_usd(self, request: ModelRequest) -> float | None:
        """Maximum cost of a reply, if one was given."""
        return self._worst(request) if callable(self._worst) else self._worst

    def fail(self, failure: Failure, times: int = 1) -> None:
        """Make the next calls fail; the script continues after them."""
        self._faults.extend([failure] * times)

    async def complete(self, request: ModelRequest) -> ModelReply | Failure:
        """Return the next reply of the script."""
        self.requests.append(request)
        # a real model never answers within the same turn of the event loop
        await asyncio.sleep(0)
        if self._faults:
            return self._faults.pop(0)
        line = self._line(request)
        return ModelReply(line, self._usage) if isinstance(line, str) else line

    def heard(self, request: ModelRequest) -> None:
        """Skip a reply that an earlier session received: a file continues after it."""
        if isinstance(self._script, FileScript):
            self._script.pick(request)

    def _line(self, request: ModelRequest) -> Line:
        if callable(self._script):
            return self._script(request)
        if self._next >= len(self._script):
            what = f"the script ends after {len(self._script)} replies"
            return Failure("harness", "infrastructure", what)
        self._next += 1
        return self._script[self._next - 1]


class Wanted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Tool call requested by a reply."""

    name: str
    arguments: dict[str, object] = {}


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One line of a file of replies."""

    text: str
    when: str | None = None
    """Words in the last message that it answers; without them, it is used in its turn."""
    tokens_in: int | None = None
    tokens_out: int | None = None
    finish: Finish = "stop"
    tool_calls: tuple[Wanted, ...] = ()


@dataclass(slots=True)
class FileScript:
    """Replies of a file: the first whose words occur in the request, else the next in turn.

    Those in turn depend on the order of requests. A resumed run continues after the last one that
    it replays from its journal.
    """

    entries: tuple[Entry, ...]
    rates: Rates
    path: str = "the script"
    """Path of the file."""
    _next: int = 0

    def __call__(self, request: ModelRequest) -> Line:
        """Return the reply to a request, or a failure if none is left."""
        entry = self.pick(request)
        if entry is None:
            asked = one_line(request.messages[-1].text, 80)
            heard = count(self._next, "reply", "replies")
            left = f"{heard} in turn {are(self._next)} used up" if self._next else "none is in turn"
            what = f"{self.path} has no reply to `{asked}`: no `when` is in it, and {left}"
            return Failure("harness", "infrastructure", what)
        return self._reply(entry, request)

    def pick(self, request: ModelRequest) -> Entry | None:
        """Choose the entry for a request and consume it; None if none is left."""
        last = request.messages[-1].text
        for entry in self.entries:
            if entry.when is not None and entry.when in last:
                return entry
        turns = [entry for entry in self.entries if entry.when is None]
        if self._next >= len(turns):
            return None
        self._next += 1
        return turns[self._next - 1]

    def worst(self, request: ModelRequest) -> float:
        """Maximum cost of any of the replies."""
        return max((self._usage(entry, request).usd for entry in self.entries), default=0.0)

    def _reply(self, entry: Entry, request: ModelRequest) -> ModelReply:
        calls = tuple(
            ToolCall(f"call-{n}", one.name, msgspec.json.encode(one.arguments).decode())
            for n, one in enumerate(entry.tool_calls)
        )
        finish: Finish = "tool_calls" if calls else entry.finish
        return ModelReply(entry.text, self._usage(entry, request), finish, calls)

    def _usage(self, entry: Entry, request: ModelRequest) -> Usage:
        # about four characters per token, if the entry declares no counts
        asked = sum(len(message.text) for message in request.messages) // 4 + 1
        tokens_in = asked if entry.tokens_in is None else entry.tokens_in
        tokens_out = len(entry.text) // 4 + 1 if entry.tokens_out is None else entry.tokens_out
        usd = self.rates.usd(Taken(tokens_in, tokens_out))
        return Usage(1, tokens_in, tokens_out, usd=usd)


def make(config: ModelConfig) -> ScriptedModel:
    """Create the model of a file of JSON lines; raise `SetupError` if it cannot be read."""
    script = read_script(config.folder / config.model)
    script = replace(script, rates=declared(config.price) if config.price else FREE_OF_CHARGE)
    return ScriptedModel(script, name=config.name, worst=script.worst)


def read_script(path: Path) -> FileScript:
    """Read a file of replies, one per line: a text, or an object with `text` and other fields."""
    entries: list[Entry] = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise SetupError(f"cannot read the replies in {path}: {error}") from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            found = msgspec.json.decode(line, type=str | Entry)
        except msgspec.MsgspecError as error:
            raise SetupError(f"{path}:{number}: not a reply: {error}") from error
        entries.append(Entry(found) if isinstance(found, str) else found)
    return FileScript(tuple(entries), FREE_OF_CHARGE, str(path))
