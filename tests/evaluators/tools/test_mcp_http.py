"""Servers made with the SDK, over HTTP on this machine: they take seconds to be up."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import pytest

from kept.core.llm import ToolAnswer
from kept.core.rollout import Failure
from kept.engine.replay import JournalScope
from kept.evaluators.tools.mcp import McpConfig, McpServer
from kept.testing import MemoryJournal
from tests.evaluators.tools.served import ServedSuite, answer, tools_of

pytestmark = pytest.mark.slow

SDK = Path(__file__).with_name("sdk_server.py")
PATHS = {"http": "mcp", "sse": "sse"}


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@contextmanager
def serving(port: int) -> Generator[subprocess.Popen[bytes]]:
    words = [sys.executable, str(SDK), str(port)]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 30
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                assert time.monotonic() < deadline, "the server does not come up"
                time.sleep(0.02)
        yield process
    finally:
        process.kill()
        process.wait()


def config(transport: Literal["http", "sse"], port: int, timeout: float = 30.0) -> McpConfig:
    url = f"http://127.0.0.1:{port}/{PATHS[transport]}"
    headers = {"X-Who": "kept"}
    return McpConfig("shop", Path("/"), transport, url=url, headers=headers, timeout=timeout)


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    found = free_port()
    with serving(found):
        yield found


class TestHttpServer(ServedSuite):
    @pytest.fixture(autouse=True)
    def _at(self, port: int) -> None:
        self._port = port

    def server(self) -> McpServer:
        return McpServer(config("http", self._port))

    def wrong_arguments(self) -> Mapping[str, object] | None:
        return {}


def test_fifty_megabytes_over_http_do_not_hold_up_the_others(port: int):
    async def whole() -> tuple[ToolAnswer | Failure, list[float]]:
        server = McpServer(config("http", port))
        found = await tools_of(server)
        large = asyncio.create_task(found["large"].use({}, JournalScope(MemoryJournal(), "scope")))
        waits: list[float] = []
        while not large.done():
            began = time.monotonic()
            await asyncio.sleep(0.01)
            waits.append(time.monotonic() - began)
        await server.close()
        return await large, waits

    said, waits = asyncio.run(whole())
    assert isinstance(said, ToolAnswer)
    assert said.text == "the answer has more than 8 MiB, which is too long to be told"
    assert max(waits) < 5


def test_a_server_that_is_restarted_fails_what_is_under_way_and_serves_the_next():
    port = free_port()

    async def whole() -> tuple[ToolAnswer | Failure, ToolAnswer | Failure, ToolAnswer]:
        server = McpServer(config("http", port, timeout=5.0))
        with serving(port) as process:
            found = await tools_of(server)
            scope = JournalScope(MemoryJournal(), "scope")
            under_way = asyncio.create_task(found["hang"].use({}, scope))
            await asyncio.sleep(0.3)
            os.kill(process.pid, signal.SIGKILL)
            lost = await under_way
        away = await found["echo"].use({"text": "on"}, scope)
        with serving(port):
            said = await answer(found["echo"], text="on")
            await server.close()
        return lost, away, said

    lost, away, said = asyncio.run(whole())
    assert isinstance(lost, Failure) and isinstance(away, Failure)
    words = "the server `shop` went away while it was asked for `hang`: Connection closed"
    assert lost.message == words
    assert away.message == "cannot open the server `shop`: All connection attempts failed"
    assert lost.retryable and away.retryable
    assert said.text == "on"


def test_the_older_transport_works_as_well(port: int):
    async def whole() -> list[str]:
        server = McpServer(config("sse", port))
        found = await tools_of(server)
        large = await answer(found["large"])
        said = await answer(found["add"], a=1, b=2)
        await server.close()
        return [large.text, said.text]

    too_long = "the answer has more than 1 MiB, which is too long to be told"
    assert asyncio.run(whole()) == [too_long, "3"]


def test_a_server_made_with_the_sdk_works_over_pipes():
    async def whole() -> tuple[ToolAnswer, ToolAnswer]:
        server = McpServer(McpConfig("shop", SDK.parent, "stdio", "python", (SDK.name,)))
        found = await tools_of(server)
        right, wrong = await answer(found["add"], a=1, b=2), await answer(found["add"], a="x")
        await server.close()
        return right, wrong

    right, wrong = asyncio.run(whole())
    assert (right.text, right.wrong) == ("3", False)
    assert wrong.wrong and "valid integer" in wrong.text


def test_a_server_that_is_not_there_is_told():
    server = McpServer(config("http", free_port()))
    failure = asyncio.run(server.tools())
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.blame) == ("network", "infrastructure")
    assert failure.message == "cannot open the server `shop`: All connection attempts failed"
