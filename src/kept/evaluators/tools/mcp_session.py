"""One connection to a server of tools, held open by a task of its own.

What the SDK opens must be closed by the task that opened it, and rollouts come and go: so none of
them opens it. Any of them may speak by it.
"""

import asyncio
import logging
import re
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from kept._version import __version__
from kept.core.rollout import Failure, FailureKind
from kept.core.words import count
from kept.engine.raised import first_of
from kept.engine.threads import call_apart
from kept.evaluators.tools.mcp_stdio import MOST_LINE, Program, stdio
from kept.settings import install_command, variable, without_login

if TYPE_CHECKING:
    from mcp import Client
    from mcp.client._transport import TransportStreams

_VARIABLE = re.compile(r"\$\{(\w+)\}")
_CLOSING = 15.0
"""Seconds that a connection gets to end."""


@dataclass(frozen=True, slots=True)
class McpConfig:
    """A server of tools, and how to reach it."""

    name: str
    folder: Path
    """Where it is started, and what the file of its environment is relative to."""
    transport: Literal["stdio", "http", "sse", "websocket"] = "stdio"
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    """May hold `${NAME}`, as headers may: filled in when it is opened, and written down nowhere."""
    env_file: str | None = None
    """Lines of `NAME=value`; `env` goes before it."""
    encoding: str = "utf-8"
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    timeout: float = 30.0
    """Seconds that it gets to be there."""
    request_timeout: float = 60.0
    """Seconds for one use of a tool."""
    sse_read_timeout: float = 300.0
    """Seconds that a stream of its may be silent."""
    terminate_on_close: bool = True
    load_tools: bool = True
    is_retrieval: bool = False
    """Whether what its tools say are passages that an answer rests on."""


class Session:
    """One connection, from its beginning to its end."""

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
        """Whether it is known to be of no more use."""
        return self._over or (self._program is not None and self._program.ended)

    async def open(self) -> "Client | Failure":
        """What to speak by. Whoever is cancelled while it waits leaves it to the next one."""
        if self._task is None:
            self._task = asyncio.create_task(self._hold())
        await asyncio.wait((self._ready,), timeout=self._config.timeout)
        if not self._ready.done():
            self._ready.set_result(self._failure(TimeoutError(), "timeout"))
        return self._ready.result()

    async def close(self) -> str:
        """End it; how a server that had ended by itself did, in words."""
        ended = self.ended
        self._over = True
        self._stop.set()
        if self._task is not None:
            # one that is still being opened does not look at what it is told
            patience = _CLOSING if self._up else 0.0
            if not (await asyncio.wait((self._task,), timeout=patience))[0]:
                self._task.cancel()
                await asyncio.wait((self._task,), timeout=_CLOSING)
        return self._program.how() if self._program is not None and ended else ""

    async def _hold(self) -> None:
        try:
            # slow to import, and others have work to do
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
        except BaseException as error:  # noqa: BLE001 # whatever a transport of the SDK may raise, in a group or not
            if not self._ready.done():
                self._ready.set_result(self._failure(first_of(error)))
        finally:
            self._over = True

    def _transport(self) -> "AbstractAsyncContextManager[TransportStreams]":
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


def _sse(config: McpConfig) -> "AbstractAsyncContextManager[TransportStreams]":
    from mcp.client.sse import sse_client

    from kept.evaluators.tools.mcp_http import MOST_EVENT, client_of

    def made(headers: Any = None, timeout: Any = None, auth: object = None) -> Any:  # noqa: ANN401 # of the SDK
        return client_of(headers or {}, timeout, MOST_EVENT)

    seconds = (config.timeout, config.sse_read_timeout)
    return sse_client(config.url, _filled(config.headers), *seconds, httpx_client_factory=made)


def _http(config: McpConfig) -> "AbstractAsyncContextManager[TransportStreams]":
    from contextlib import asynccontextmanager

    from mcp.client.streamable_http import streamable_http_client

    from kept.evaluators.tools.mcp_http import client_of

    @asynccontextmanager
    async def opened():  # noqa: ANN202 # a generator of what the SDK makes
        async with (
            client_of(_filled(config.headers)) as client,
            streamable_http_client(
                config.url,
                http_client=client,
                terminate_on_close=config.terminate_on_close,
                # what comes here was cut before, by lines
                max_sse_event_size=2 * MOST_LINE,
            ) as streams,
        ):
            yield streams

    return opened()


def _import() -> None:
    import mcp  # noqa: F401  # pyright: ignore[reportUnusedImport]

    # it would tell on stderr what callers are told anyway
    logging.getLogger("mcp").addHandler(logging.NullHandler())


def _filled(values: Mapping[str, str]) -> dict[str, str]:
    """The same values, with variables of our environment where they name one."""

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
