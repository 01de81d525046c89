"""Tools of servers that speak the Model Context Protocol.

A server is opened when it is first needed, once for a run, and used by all rollouts at once. One
that goes away fails the uses that are under way, and is opened again for the next one; not for
ever. Any of those uses may have brought it down, so when they are made again they are made one by
one: the one that does is found, and the others have their answers.
"""

import json
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kept.core.model import ToolOffer
from kept.core.ports import Scope, Tool
from kept.core.rollout import Failure
from kept.core.tool import ToolAnswer
from kept.core.words import count
from kept.evaluators.tools.mcp_session import McpConfig, Session
from kept.evaluators.tools.using import cut, journalled
from kept.sandbox.turns import Turns

if TYPE_CHECKING:
    from mcp import Client

MOST_OPENS = 5
"""How often a server is opened without answering a use in between, before it is given up."""

_PAGES = 100
_ODD = re.compile(r"[^A-Za-z0-9_-]")
"""What no provider takes in the name of a tool."""
_LOST = {-32000, -32600}
"""Codes of the SDK for a connection that is gone, and for one that the server knows nothing of."""
_LATE = -32001
_SERVERS_FAULT = {-32603, -32700}


class McpServer:
    """A server and the tools that it offers, for a whole run."""

    def __init__(self, config: McpConfig) -> None:
        self.config = config
        self._session: Session | None = None
        self._opening = Turns(1)
        self._opens = 0
        self._failed: Failure | None = None
        self._tools: tuple[McpTool, ...] | None = None
        self._suspects: set[str] = set()
        """Uses that were under way when it went away."""
        self._alone = Turns(1)

    async def tools(self) -> "tuple[McpTool, ...] | Failure":
        """What it offers, by its own names; asked for once."""
        if not self.config.load_tools:
            return ()
        if self._tools is None:
            found: list[Any] = []
            cursor: str | None = None
            for _ in range(_PAGES):
                page = await self._ask(
                    "its tools", lambda client, at=cursor: client.list_tools(cursor=at)
                )
                if isinstance(page, Failure | ToolAnswer):
                    return page if isinstance(page, Failure) else self._broken(page.text)
                found += page.tools
                cursor = page.next_cursor
                if not cursor:
                    break
            self._tools = tuple(map(self._tool, found))
        return self._tools

    async def call(self, tool: str, arguments: Mapping[str, object]) -> ToolAnswer | Failure:
        """Use a tool of it once."""
        use = json.dumps([tool, arguments], sort_keys=True, default=repr)
        if use not in self._suspects:
            said = await self._call(tool, arguments)
            if self._is_gone(said):
                self._suspects.add(use)
            return said
        async with self._alone.take():
            said = await self._call(tool, arguments)
        if isinstance(said, Failure) and self._is_gone(said):
            return replace(said, message=f"{said.message} (twice)", tried=True)
        self._suspects.discard(use)
        return said

    def _is_gone(self, said: ToolAnswer | Failure) -> bool:
        """Whether a process of ours ended; one elsewhere is not ours to find a culprit for."""
        ours = self.config.transport == "stdio"
        return ours and isinstance(said, Failure) and said.kind == "network"

    async def _call(self, tool: str, arguments: Mapping[str, object]) -> ToolAnswer | Failure:
        seconds = self.config.request_timeout
        result = await self._ask(
            f"`{tool}`", lambda client: client.call_tool(tool, dict(arguments), seconds)
        )
        if isinstance(result, Failure | ToolAnswer):
            return result
        self._opens = 1
        parts = [part for block in result.content if (part := _words(block))]
        if not parts and result.structured_content is not None:
            parts = [json.dumps(result.structured_content, ensure_ascii=False)]
        text = cut("\n".join(parts))
        found = self.config.is_retrieval and not result.is_error
        return ToolAnswer(text, result.is_error, tuple(map(cut, parts)) if found else ())

    async def close(self) -> None:
        """End it."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _ask(self, what: str, do: "Callable[[Client], Awaitable[Any]]") -> Any:  # noqa: ANN401 # what the SDK answers
        """What a server answers; words for the model, or a failure, where it does not."""
        opened = await self._open()
        if isinstance(opened, Failure):
            return opened
        session, client = opened
        from mcp import MCPError

        try:
            return await do(client)
        except MCPError as error:
            return await self._refused(what, session, error.code, error.message)
        except RuntimeError as error:
            if session.ended:
                return await self._lost(what, session, str(error))
            # an answer that is not what the server says its answers are
            return ToolAnswer(str(error), wrong=True)

    async def _refused(
        self, what: str, session: Session, code: int, words: str
    ) -> ToolAnswer | Failure:
        name = self.config.name
        if code == _LATE:
            seconds = count(self.config.request_timeout, "second")
            message = f"the server `{name}` did not answer {what} within {seconds}"
            return Failure("timeout", "infrastructure", message)
        # a process that is still there has said so itself, whatever it means by the code
        if code in _LOST and (session.ended or self.config.transport != "stdio"):
            return await self._lost(what, session, words)
        if code in _SERVERS_FAULT:
            message = f"the server `{name}` failed when it was asked for {what}: {words}"
            return Failure("server", "infrastructure", message)
        return ToolAnswer(cut(words), wrong=True)

    async def _lost(self, what: str, session: Session, words: str) -> Failure:
        how = await self._drop(session) or words
        message = f"the server `{self.config.name}` went away while it was asked for {what}: {how}"
        return Failure("network", "infrastructure", message)

    async def _open(self) -> "tuple[Session, Client] | Failure":
        async with self._opening.take():
            if self._session is not None and self._session.ended:
                await self._drop(self._session)
            if self._session is None:
                if self._opens >= MOST_OPENS:
                    return self._given_up()
                self._opens += 1
                self._session = Session(self.config)
            session = self._session
            opened = await session.open()
            if isinstance(opened, Failure):
                self._failed = opened
                await self._drop(session)
                return opened
            return session, opened

    async def _drop(self, session: Session) -> str:
        if self._session is session:
            self._session = None
        return await session.close()

    def _given_up(self) -> Failure:
        times = f"{MOST_OPENS} times in a row"
        message = f"the server `{self.config.name}` was opened {times}, and went away"
        if self._failed is not None:
            message = f"{self._failed.message} (tried {MOST_OPENS} times)"
        return Failure("harness", "infrastructure", message)

    def _broken(self, words: str) -> Failure:
        message = f"the server `{self.config.name}` does not tell its tools: {words}"
        return Failure("harness", "infrastructure", message)

    def _tool(self, told: Any) -> "McpTool":  # noqa: ANN401 # of the SDK
        schema: dict[str, object] = {"type": "object", "properties": {}, **told.input_schema}
        name = _ODD.sub("_", told.name)[:64]
        return McpTool(self, told.name, ToolOffer(name, told.description or "", schema))


@dataclass(frozen=True, slots=True)
class McpTool:
    """One tool of a server."""

    server: McpServer
    name: str
    """What the server calls it."""
    offer: ToolOffer

    async def use(self, arguments: Mapping[str, object], scope: Scope) -> ToolAnswer | Failure:
        """Use it once."""
        request = {"tool": self.name, "server": self.server.config.name}
        return await journalled(
            scope,
            {**request, "arguments": dict(arguments)},
            lambda: self.server.call(self.name, arguments),
        )


def told_apart(tools: Sequence[Tool]) -> tuple[Tool, ...]:
    """The same tools; one of a server whose name another has as well has the server's before it."""
    named = Counter(tool.offer.name for tool in tools)
    return tuple(
        _prefixed(tool) if isinstance(tool, McpTool) and named[tool.offer.name] > 1 else tool
        for tool in tools
    )


def _prefixed(tool: McpTool) -> McpTool:
    name = f"{_ODD.sub('_', tool.server.config.name)}_{tool.offer.name}"[:64]
    return replace(tool, offer=replace(tool.offer, name=name))


def _words(block: Any) -> str:  # noqa: ANN401 # of the SDK
    """What a part of an answer says; of what cannot be told in words, that it was there."""
    match block.type:
        case "text":
            return block.text
        case "resource":
            return getattr(block.resource, "text", f"[{block.resource.uri} was left out]")
        case "resource_link":
            return f"[{block.name}]({block.uri})"
        case kind:
            return f"[a part of kind {kind} was left out]"
