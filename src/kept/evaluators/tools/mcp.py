"""Model Context Protocol tools: a server connection shared by all rollouts of a run.

The SDK requires that the task that opens a connection also closes it, and rollouts come and go.
So a separate task holds each connection, and any rollout may use it.

A server is opened on first use, once for a run. If it goes away, calls under way fail and the
next one reopens it, at most five times in a row. Any of the failed calls may be the cause, so
they are repeated one by one. This isolates the one that breaks the server, and the others get
their answers.
"""

import asyncio
import json
import logging
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from kept._version import __version__
from kept.core.llm import ToolAnswer, ToolOffer
from kept.core.ports import Scope, Tool
from kept.core.rollout import Failure, FailureKind
from kept.core.text import count
from kept.engine.user_code import call_apart, first_of
from kept.evaluators.tools.journalled_call import cut, journalled
from kept.evaluators.tools.mcp_transports import MOST_EVENT, MOST_LINE, Program, client_of, stdio
from kept.sandbox.process import Turns
from kept.settings import install_command, variable, without_login

if TYPE_CHECKING:
    from mcp import Client
    from mcp.client import Transport


_VARIABLE = re.compile(r"\$\{(\w+)\}")
_CLOSING = 15.0
"""Time limit for closing a connection, in seconds."""


@dataclass(frozen=True, slots=True)
class McpConfig:
    """MCP server and its transport."""

    name: str
    folder: Path
    """Working directory of the server, and base of `env_file`."""
    transport: Literal["stdio", "http", "sse", "websocket"] = "stdio"
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    """May hold `${NAME}`, like headers: expanded at opening and never stored."""
    env_file: str | None = None
    """File with lines of `NAME=value`; `env` takes precedence."""
    encoding: str = "utf-8"
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    timeout: float = 30.0
    """Time limit for opening the connection, in seconds."""
    request_timeout: float = 60.0
    """Seconds for one use of a tool."""
    sse_read_timeout: float = 300.0
    """Maximum silence of an SSE stream, in seconds."""
    terminate_on_close: bool = True
    load_tools: bool = True
    is_retrieval: bool = False
    """True if the tools return passages that an answer is based on."""


class Session:
    """One connection and the task that holds it."""

    def __init__(self, config: McpConfig) -> None:
        self._config = config
        self._stop = asyncio.Event()
        self._ready: asyncio.Future[Client | Failure] = asyncio.get_running_loop().create_future()
        self._task: asyncio.Task[None] | None = None
        self._program: Program | None = None
        self._up = False
        self._over = False

    @property
    def ended(self) -> bool:
        """True if the connection is over or its process has ended."""
        return self._over or (self._program is not None and self._program.ended)

    async def open(self) -> "Client | Failure":
        """Open the connection and return its client; a cancelled caller does not close it."""
        if self._task is None:
            self._task = asyncio.create_task(self._hold())
        await asyncio.wait((self._ready,), timeout=self._config.timeout)
        if not self._ready.done():
            self._ready.set_result(self._failure(TimeoutError(), "timeout"))
        return self._ready.result()

    async def close(self) -> str:
        """Close the connection; return how the server ended if it had ended by itself."""
        ended = self.ended
        self._over = True
        self._stop.set()
        if self._task is not None:
            # one that is still being opened does not watch `_stop`
            patience = _CLOSING if self._up else 0.0
            if not (await asyncio.wait((self._task,), timeout=patience))[0]:
                self._task.cancel()
                await asyncio.wait((self._task,), timeout=_CLOSING)
        return self._program.how() if self._program is not None and ended else ""

    async def _hold(self) -> None:
        try:
            # slow to import: in a thread, so that other tasks go on
            await call_apart(_import)
            from mcp import Client, Implementation

            async with Client(
                self._transport(),
                read_timeout_seconds=self._config.timeout,
                client_info=Implementation(name="kept", version=__version__),
                cache=None,
            ) as client:
                self._up = True
                if not self._ready.done():
                    self._ready.set_result(client)
                await self._stop.wait()
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 # an SDK transport may raise anything, in a group or not
            if not self._ready.done():
                self._ready.set_result(self._failure(first_of(error)))
        finally:
            self._over = True

    def _transport(self) -> "Transport":
        config = self._config
        if config.transport == "websocket":
            raise ValueError("servers are not spoken to by websocket; most that offer it know http")
        if config.transport == "stdio":
            env = {**_read_env(config), **_filled(config.env)}
            words = (config.command, config.args)
            self._program = Program(*words, config.folder, env, config.encoding)
            return stdio(self._program)
        if config.transport == "sse":
            return _sse(config)
        return _http(config)

    def _failure(self, error: BaseException, kind: FailureKind | None = None) -> Failure:
        config = self._config
        words = str(error).strip() or type(error).__name__
        if isinstance(error, ImportError):
            words = f"that takes {error.name or 'mcp'}: {install_command('mcp')}"
        elif isinstance(error, OSError) and error.strerror:
            words = f"{error.strerror.lower()}: {error.filename or config.url or config.command}"
        elif isinstance(error, TimeoutError):
            words = f"it did not answer within {count(config.timeout, 'second')}"
        elif self._program is not None and self._program.ended:
            words = self._program.how()
        lasting = config.transport == "stdio" or isinstance(error, ImportError | ValueError)
        message = f"cannot open the server `{config.name}`: {without_login(words.splitlines()[0])}"
        detail = self._program.last_words if self._program is not None else ""
        return Failure(
            kind or ("harness" if lasting else "network"), "infrastructure", message, detail
        )


def _sse(config: McpConfig) -> "Transport":
    from mcp.client.sse import sse_client

    def made(headers: Any = None, timeout: Any = None, auth: object = None) -> Any:  # noqa: ANN401 # of the SDK
        return client_of(headers or {}, timeout, MOST_EVENT)

    seconds = (config.timeout, config.sse_read_timeout)
    return sse_client(config.url, _filled(config.headers), *seconds, httpx_client_factory=made)


def _http(config: McpConfig) -> "Transport":

    from mcp.client.streamable_http import streamable_http_client

    @asynccontextmanager
    async def opened():  # noqa: ANN202 # a generator of what the SDK makes
        async with (
            client_of(_filled(config.headers)) as client,
            streamable_http_client(
                config.url,
                http_client=client,
                terminate_on_close=config.terminate_on_close,
                # events that arrive here were bounded before, line by line
                max_sse_event_size=2 * MOST_LINE,
            ) as streams,
        ):
            yield streams

    return opened()


def _import() -> None:
    import mcp  # noqa: F401  # pyright: ignore[reportUnusedImport]

    # it would print to stderr what callers report anyway
    logging.getLogger("mcp").addHandler(logging.NullHandler())


def _filled(values: Mapping[str, str]) -> dict[str, str]:
    """Expand `${NAME}` in values with variables of Kept's environment."""

    def value(match: re.Match[str]) -> str:
        found = variable(match[1])
        if found is None:
            raise ValueError(f"the variable {match[1]} is not set")
        return found

    return {name: _VARIABLE.sub(value, text) for name, text in values.items()}


def _read_env(config: McpConfig) -> dict[str, str]:
    if config.env_file is None:
        return {}
    found: dict[str, str] = {}
    for line in (config.folder / config.env_file).read_text(encoding="utf-8").splitlines():
        name, equals, value = line.strip().removeprefix("export ").partition("=")
        if equals and not name.startswith("#"):
            value = value.strip()
            quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
            found[name.strip()] = value[1:-1] if quoted else value
    return found


MOST_OPENS = 5
"""Maximum number of openings in a row without an answered call."""

_PAGES = 100
_ODD = re.compile(r"[^A-Za-z0-9_-]")
"""Characters that no provider accepts in the name of a tool."""
_LOST = {-32000, -32600}
"""SDK codes for a lost connection, and for a session that the server does not know."""
_LATE = -32001
_SERVERS_FAULT = {-32603, -32700}


class McpServer:
    """Server and its tools, for a whole run."""

    def __init__(self, config: McpConfig) -> None:
        self.config = config
        self._session: Session | None = None
        self._opening = Turns(1)
        self._opens = 0
        self._failed: Failure | None = None
        self._tools: tuple[McpTool, ...] | None = None
        self._suspects: set[str] = set()
        """Calls that were under way when the server went away; they are repeated alone."""
        self._alone = Turns(1)

    async def tools(self) -> "tuple[McpTool, ...] | Failure":
        """List the tools of the server once, by their own names."""
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
        """Call a tool of the server once."""
        use = json.dumps([tool, arguments], sort_keys=True, default=repr)
        # a call that was under way when the server ended is repeated alone, to find the culprit
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
        """True if our own server process ended; remote servers are not examined."""
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
        """Close the connection."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _ask(self, what: str, do: "Callable[[Client], Awaitable[Any]]") -> Any:  # noqa: ANN401 # what the SDK answers
        """Ask the server; returns its answer, an error text for the model, or a failure."""
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
            # an answer that does not fit the output schema of the tool
            return ToolAnswer(str(error), wrong=True)

    async def _refused(
        self, what: str, session: Session, code: int, words: str
    ) -> ToolAnswer | Failure:
        name = self.config.name
        if code == _LATE:
            seconds = count(self.config.request_timeout, "second")
            message = f"the server `{name}` did not answer {what} within {seconds}"
            return Failure("timeout", "infrastructure", message)
        # a process that is still alive sent this code itself: not a lost connection
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
    """Name of the tool at the server."""
    offer: ToolOffer

    async def use(self, arguments: Mapping[str, object], scope: Scope) -> ToolAnswer | Failure:
        """Call the tool once; a resume returns the journalled answer."""
        request = {"tool": self.name, "server": self.server.config.name}
        return await journalled(
            scope,
            {**request, "arguments": dict(arguments)},
            lambda: self.server.call(self.name, arguments),
        )


def told_apart(tools: Sequence[Tool]) -> tuple[Tool, ...]:
    """Tools with unique names: a name that is taken twice gets the server's as prefix."""
    named = Counter(tool.offer.name for tool in tools)
    apart: list[Tool] = []
    for tool in tools:
        if isinstance(tool, McpTool) and named[tool.offer.name] > 1:
            name = f"{_ODD.sub('_', tool.server.config.name)}_{tool.offer.name}"[:64]
            tool = replace(tool, offer=replace(tool.offer, name=name))
        apart.append(tool)
    return tuple(apart)


def _words(block: Any) -> str:  # noqa: ANN401 # of the SDK
    """Text of a part of an answer; a note for a part that has no text."""
    match block.type:
        case "text":
            return block.text
        case "resource":
            return getattr(block.resource, "text", f"[{block.resource.uri} was left out]")
        case "resource_link":
            return f"[{block.name}]({block.uri})"
        case kind:
            return f"[a part of kind {kind} was left out]"
