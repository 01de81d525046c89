"""MCP transports: server processes over stdio, and bounded responses over HTTP.

The SDK's stdio transport is not used (decision 0223): it reads a line of any length, joins its
parts anew with every part, and does not say how a server ended.

The SDK reads an HTTP answer whole before it can be inspected. Here an answer that is too long is
cut on arrival and replaced by an error, as over pipes.
"""

import asyncio
import json
import os
import re
import signal
import tempfile
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, TypeAlias

import httpx2

from kept.sandbox import watchdog
from kept.sandbox.process import how_ended
from kept.settings import child_environment

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from mcp.shared.message import SessionMessage

    Heard: TypeAlias = SessionMessage | Exception
    Streams: TypeAlias = tuple[
        MemoryObjectReceiveStream[Heard], MemoryObjectSendStream[SessionMessage]
    ]


MOST_LINE = 8 * 1024 * 1024
"""Maximum size of one message; a longer one is replaced by an error."""

TOO_LONG = -32099
"""Error code that replaces such a message, from the range free for implementations."""

GRACE = 2.0
"""Time for a server to end after its input is closed, and again after SIGTERM."""

_PART = 64 * 1024
_DETAIL = 4000
_MOST_ERRORS = 1024 * 1024
"""Maximum size of the stderr file, which is emptied beyond it."""
_ID = r'"id" *: *(\d+|"[^"\\]{1,100}")'
_EARLY = re.compile(rf'^\{{ *(?:"jsonrpc" *: *"2\.0" *, *)?{_ID}'.encode())
_LATE = re.compile(rf'{_ID} *(?:, *"jsonrpc" *: *"2\.0" *)?\}}\s*$'.encode())


@dataclass(slots=True)
class Program:
    """Command of a server process, and how the process ended."""

    command: str
    args: tuple[str, ...]
    folder: Path
    env: Mapping[str, str]
    encoding: str = "utf-8"
    ended: bool = field(default=False, init=False)
    """True once its output has ended."""
    last_words: str = field(default="", init=False)
    """Last part of its stderr."""
    code: int | None = field(default=None, init=False)

    def how(self) -> str:
        """Text that says how the process ended."""
        how = f"it {how_ended(self.code)}"
        last = self.last_words.rpartition("\n")[2]
        return f"{how}: {last[:300]}" if last else how


@asynccontextmanager
async def stdio(program: Program) -> "AsyncGenerator[Streams]":
    """Start a server and yield streams for the SDK; raises `OSError` if that fails."""
    import anyio

    # append, so that it can be emptied while the server has it open
    with tempfile.TemporaryFile("a+b") as errors:
        process = await asyncio.create_subprocess_exec(
            program.command,
            *program.args,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            cwd=program.folder,
            env=child_environment(program.env),
            start_new_session=True,
        )
        watchdog.watch(process.pid)
        heard, reading = anyio.create_memory_object_stream["Heard"](0)
        writing, said = anyio.create_memory_object_stream["SessionMessage"](0)
        tasks = (
            asyncio.create_task(_listen(process, heard, program, errors)),
            asyncio.create_task(_speak(process, said, program)),
        )
        try:
            yield reading, writing
        finally:
            await _end(process)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for stream in (heard, reading, writing, said):
                stream.close()
            program.code = process.returncode
            size = errors.seek(0, os.SEEK_END)
            errors.seek(max(0, size - _DETAIL))
            program.last_words = errors.read().decode("utf-8", "replace").strip()


class Line:
    """Line that arrives in parts; of one that is too long only both ends are kept."""

    def __init__(self, most: int = MOST_LINE) -> None:
        self._most = most
        self._parts: list[bytes] = []
        self._size = 0
        self._head = b""
        self._tail = b""

    @property
    def too_long(self) -> bool:
        """True if the line is longer than the limit."""
        return self._size > self._most

    def add(self, part: bytes) -> None:
        """Add the next part."""
        self._size += len(part)
        if not self.too_long:
            self._parts.append(part)
            return
        if not self._head:
            self._head = b"".join((*self._parts, part[:_PART]))[:_PART]
            self._parts.clear()
        self._tail = (self._tail + part)[-_PART:]

    def whole(self) -> bytes:
        """Whole line."""
        return b"".join(self._parts)

    def whose(self, before: bytes = b"") -> bytes | None:
        """Request id of the answer, if an end of the line has it; `before` is a prefix to skip."""
        # either end may tell: SDKs differ in what they write first
        head = self._head.removeprefix(before).lstrip()
        found = _EARLY.search(head) or _LATE.search(self._tail)
        return found[1] if found else None

    def read(self) -> bytes:
        """Message, or an error in place of one that is too long; empty without a request id."""
        if not self.too_long:
            return self.whole()
        size = f"{self._size / 1024**2:,.0f} MiB"
        return in_place(self.whose(), f"the answer has {size}, which is too long to be told")


def in_place(asked: bytes | None, words: str) -> bytes:
    """Error message in place of an answer that is not passed on; empty without a request id."""
    if asked is None:
        return b""
    error = json.dumps({"code": TOO_LONG, "message": words}).encode()
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (asked, error)


async def _listen(
    process: asyncio.subprocess.Process,
    heard: "MemoryObjectSendStream[Heard]",
    program: Program,
    errors: IO[bytes],
) -> None:
    """Pass on messages of the server."""
    from anyio import BrokenResourceError, ClosedResourceError
    from mcp.shared.message import SessionMessage
    from mcp_types import jsonrpc_message_adapter

    assert process.stdout is not None
    line = Line()
    try:
        async with heard:
            while part := await process.stdout.read(_PART):
                if os.fstat(errors.fileno()).st_size > _MOST_ERRORS:
                    errors.truncate(0)
                *ends, rest = part.split(b"\n")
                for end in ends:
                    line.add(end)
                    text = line.read().decode(program.encoding, "replace")
                    line = Line()
                    # a line that is no message was printed by mistake
                    with suppress(ValueError):
                        message = jsonrpc_message_adapter.validate_json(text, by_name=False)
                        await heard.send(SessionMessage(message))
                line.add(rest)
            # set before the stream closes and waiting callers notice
            program.ended = True
    except (BrokenResourceError, ClosedResourceError):
        return  # the reader is closed
    finally:
        program.ended = True


async def _speak(
    process: asyncio.subprocess.Process,
    said: "MemoryObjectReceiveStream[SessionMessage]",
    program: Program,
) -> None:
    """Pass on messages to the server."""
    assert process.stdin is not None
    # a lost server is noticed by the end of its output
    with suppress(ConnectionError):
        async with said:
            async for one in said:
                text = one.message.model_dump_json(by_alias=True, exclude_unset=True)
                process.stdin.write(f"{text}\n".encode(program.encoding))
                await process.stdin.drain()


async def _end(process: asyncio.subprocess.Process) -> None:
    """End the process and everything it started."""
    assert process.stdin is not None
    process.stdin.close()
    for number in (None, signal.SIGTERM, signal.SIGKILL):
        if number is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, number)
        # not `wait`, which waits for the pipes as well, and others may hold those
        deadline = time.monotonic() + GRACE
        while process.returncode is None and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        if process.returncode is not None:
            break
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    watchdog.forget(process.pid)
    # asyncio keeps it open while any process, such as a killed child, holds its pipe
    getattr(process, "_transport").close()  # noqa: B009 # private, but there is no other way


MOST_EVENT = 1024 * 1024 - 1024
"""Maximum size of one SSE message, a little less than the SDK's client accepts."""

_TIMEOUT = httpx2.Timeout(30.0, read=300.0)
"""Seconds, as the SDK has them: a server may hold a stream open."""

_DATA = b"data:"

Hook = Callable[[httpx2.Response], Awaitable[None]]


def client_of(
    headers: Mapping[str, str], timeout: httpx2.Timeout | None = None, most: int = MOST_LINE
) -> httpx2.AsyncClient:
    """HTTP client that reads at most `most` bytes of a message."""
    return httpx2.AsyncClient(
        # a small compressed answer may unpack to a very large one
        headers={**headers, "Accept-Encoding": "identity"},
        timeout=timeout or _TIMEOUT,
        event_hooks={"response": [_bounding(most)]},
    )


def _bounding(most: int) -> Hook:
    async def bound(response: httpx2.Response) -> None:
        asked = _id_of(response.request)
        inner = response.stream
        assert isinstance(inner, httpx2.AsyncByteStream)
        kind = response.headers.get("content-type", "").lower()
        if response.headers.get("content-encoding", "identity") != "identity":
            del response.headers["content-encoding"]
            response.headers["content-type"] = "application/json"
            words = "the answer is packed, which was not asked for"
            response.stream = _Cut(inner, _said(in_place(asked, words)))
        elif kind.startswith("text/event-stream"):
            response.stream = _Cut(inner, _events(inner, asked, most))
        else:
            response.stream = _Cut(inner, _whole(inner, asked, most))

    return bound


class _Cut(httpx2.AsyncByteStream):
    """Response stream that passes on bounded parts only."""

    def __init__(self, inner: httpx2.AsyncByteStream, parts: AsyncGenerator[bytes]) -> None:
        self._inner = inner
        self._parts = parts

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._parts:
            yield part

    async def aclose(self) -> None:
        await self._parts.aclose()
        await self._inner.aclose()


async def _said(text: bytes) -> AsyncGenerator[bytes]:
    yield text


async def _whole(
    inner: httpx2.AsyncByteStream, asked: bytes | None, most: int
) -> AsyncGenerator[bytes]:
    """Yield one message, or an error in its place if it is too long."""
    parts: list[bytes] = []
    size = 0
    async for part in inner:
        size += len(part)
        if size > most:
            yield in_place(asked, _too_long(most))
            return
        parts.append(part)
    yield b"".join(parts)


async def _events(
    inner: httpx2.AsyncByteStream, asked: bytes | None, most: int
) -> AsyncGenerator[bytes]:
    """Yield messages as they come, one per line."""
    line = Line(most)
    async for part in inner:
        *ends, rest = part.split(b"\n")
        for end in ends:
            line.add(end)
            if not line.too_long:
                yield line.whole() + b"\n"
            elif found := in_place(line.whose(_DATA), _too_long(most)):
                # one of many answers: its rest is skipped and nothing of it is kept
                yield _DATA + found + b"\n"
            line = Line(most)
        line.add(rest)
        if line.too_long and asked is not None:
            yield _DATA + in_place(asked, _too_long(most)) + b"\n\n"
            return
    if not line.too_long:
        yield line.whole()


def _too_long(most: int) -> str:
    return f"the answer has more than {round(most / 1024**2)} MiB, which is too long to be told"


def _id_of(request: httpx2.Request) -> bytes | None:
    """Request id as JSON that a response answers; None if it is not known."""
    if request.method != "POST":
        return None
    try:
        found = json.loads(request.content).get("id")
    except (ValueError, AttributeError):
        return None
    return None if found is None else json.dumps(found).encode()
