"""Servers of tools: real ones, over pipes and over HTTP on this machine."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Awaitable, Mapping
from pathlib import Path
from typing import Any

import pytest

from kept.core.llm import ToolAnswer
from kept.core.rollout import Failure
from kept.evaluators.tools import mcp
from kept.evaluators.tools.mcp import McpConfig, McpServer, told_apart
from kept.settings import install_command
from kept.testing import ScriptedTool
from tests.evaluators.tools.served import ServedSuite, answer, scope, tools_of
from tests.processes import is_gone

pytestmark = pytest.mark.slow

PLAIN = Path(__file__).with_name("plain_server.py")


def config(folder: Path, *more: str, **settings: Any) -> McpConfig:
    words = (str(PLAIN), str(folder / "pids"), *more)
    return McpConfig("shop", folder, command="python", args=words, **settings)


def pids(folder: Path) -> list[int]:
    return [int(line) for line in (folder / "pids").read_text().split()]


class TestPlainServer(ServedSuite):
    @pytest.fixture(autouse=True)
    def _in_folder(self, tmp_path: Path) -> None:
        self._folder = tmp_path

    def server(self) -> McpServer:
        return McpServer(config(self._folder))

    def wrong_arguments(self) -> Mapping[str, object] | None:
        return None

    def still_running(self) -> object:
        return [pid for pid in pids(self._folder) if not is_gone(pid)]


def test_a_server_is_opened_once_for_fifty_uses_at_once_and_gone_after(tmp_path: Path):
    async def whole() -> list[str]:
        server = McpServer(config(tmp_path))
        found = await asyncio.gather(*(tools_of(server) for _ in range(8)))
        uses = [answer(found[n % 8]["echo"], text=str(n), seconds=0.01) for n in range(50)]
        said = [one.text for one in await asyncio.gather(*uses)]
        await server.close()
        await server.close()
        return said

    assert asyncio.run(whole()) == [str(n) for n in range(50)]
    (pid,) = pids(tmp_path)
    assert is_gone(pid)


def test_what_a_server_starts_is_gone_with_it(tmp_path: Path):
    async def whole() -> None:
        server = McpServer(config(tmp_path, "--with-child"))
        await server.tools()
        await server.close()

    asyncio.run(whole())
    assert len(pids(tmp_path)) == 2
    assert all(is_gone(pid) for pid in pids(tmp_path))


def test_a_server_that_is_not_closed_is_gone_when_its_loop_is(tmp_path: Path):
    async def whole() -> None:
        await McpServer(config(tmp_path)).tools()

    asyncio.run(whole())
    (pid,) = pids(tmp_path)
    assert is_gone(pid)


def test_answers_of_all_kinds_are_told_as_what_they_are(tmp_path: Path):
    async def whole() -> dict[str, ToolAnswer]:
        server = McpServer(config(tmp_path))
        found = await tools_of(server)
        names = ("fail", "refuse", "noise", "page", "odd.name", "large")
        said = {name: await answer(found[name], text="bad") for name in names}
        assert found["odd.name"].offer.name == "odd_name"
        await server.close()
        return said

    said = asyncio.run(whole())
    assert (said["fail"].text, said["fail"].wrong) == ("bad", True)
    assert (said["refuse"].text, said["refuse"].wrong) == ("there is no such city", True)
    assert (said["noise"].text, said["noise"].wrong) == ("heard", False)
    assert (said["page"].text, said["page"].context) == ("first passage\nsecond passage", ())
    assert said["large"].wrong
    assert said["large"].text == "the answer has 48 MiB, which is too long to be told"
    # while it came in, nothing was copied again and again
    assert said["large"].seconds < 15


def test_a_server_of_passages_tells_them_as_context(tmp_path: Path):
    async def whole() -> ToolAnswer:
        server = McpServer(config(tmp_path, is_retrieval=True))
        said = await answer((await tools_of(server))["page"])
        await server.close()
        return said

    assert asyncio.run(whole()).context == ("first passage", "second passage")


def test_a_server_sees_of_the_environment_what_it_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SECRET_KEY", "s3cret-s3cret")
    text = "# words\nexport A=from the file\nB='quoted # so'\n\nC=1\n"
    (tmp_path / "server.env").write_text(text)

    async def whole() -> dict[str, str]:
        given = {"A": "from the spec", "KEY": "Bearer ${SECRET_KEY}"}
        server = McpServer(config(tmp_path, env=given, env_file="server.env"))
        said = await answer((await tools_of(server))["environment"])
        await server.close()
        return json.loads(said.text)

    seen = asyncio.run(whole())
    assert (seen["A"], seen["B"], seen["C"]) == ("from the spec", "quoted # so", "1")
    assert seen["KEY"] == "Bearer s3cret-s3cret"
    assert "SECRET_KEY" not in seen and "HOME" not in seen


def test_a_killed_server_fails_what_is_under_way_and_is_there_for_the_next(tmp_path: Path):
    async def whole() -> list[ToolAnswer | Failure]:
        server = McpServer(config(tmp_path))
        found = await tools_of(server)
        under_way = [asyncio.create_task(found["hang"].use({}, scope())) for _ in range(3)]
        await asyncio.sleep(0.1)
        os.kill(pids(tmp_path)[-1], signal.SIGKILL)
        failed = await asyncio.gather(*under_way)
        others = await asyncio.gather(*(found["echo"].use({"text": "on"}, scope()) for _ in "123"))
        # while nobody asks for anything
        os.kill(pids(tmp_path)[-1], signal.SIGKILL)
        await asyncio.sleep(0.1)
        last = await found["echo"].use({"text": "on"}, scope())
        await server.close()
        return [*failed, *others, last]

    *failed, one, two, three, last = asyncio.run(whole())
    for failure in failed:
        assert isinstance(failure, Failure)
        assert (failure.kind, failure.blame) == ("network", "infrastructure")
        words = (
            "the server `shop` went away while it was asked for `hang`: it was killed by SIGKILL"
        )
        assert failure.message == words
        assert failure.retryable
    for answered in (one, two, three, last):
        assert isinstance(answered, ToolAnswer) and answered.text == "on"
    assert len(pids(tmp_path)) == 3
    assert all(is_gone(pid) for pid in pids(tmp_path))


def test_a_server_that_dies_again_and_again_is_given_up(tmp_path: Path):
    async def whole() -> list[ToolAnswer | Failure]:
        server = McpServer(config(tmp_path))
        crash = (await tools_of(server))["crash"]
        failures = [await crash.use({}, scope()) for _ in range(mcp.MOST_OPENS + 1)]
        await server.close()
        return failures

    first, *_, last = asyncio.run(whole())
    assert isinstance(first, Failure) and isinstance(last, Failure)
    assert first.message.endswith("it ended with exit 7: last words")
    assert last.message == "the server `shop` was opened 5 times in a row, and went away"
    assert not last.retryable
    assert len(pids(tmp_path)) == mcp.MOST_OPENS


def test_a_use_that_brings_a_server_down_is_found_and_those_beside_it_are_answered(tmp_path: Path):
    async def whole() -> list[list[ToolAnswer | Failure]]:
        server = McpServer(config(tmp_path))
        found = await tools_of(server)

        def at_once(seconds: float) -> list[Awaitable[ToolAnswer | Failure]]:
            given = ({"text": str(n), "seconds": seconds} for n in range(7))
            asked: list[Awaitable[ToolAnswer | Failure]]
            asked = [found["echo"].use(one, scope()) for one in given]
            return [*asked[:3], found["crash"].use({}, scope()), *asked[3:]]

        # far more often than a server is opened that answers nobody
        rounds = [await asyncio.gather(*at_once(0.5)) for _ in range(mcp.MOST_OPENS)]
        await server.close()
        return rounds

    first, second, *later = asyncio.run(whole())
    # on a busy machine some are answered before the server has gone down
    assert all(isinstance(one, ToolAnswer) or one.retryable for one in first)
    assert isinstance(first[3], Failure)
    for answers in (second, *later):
        crashed = answers.pop(3)
        assert isinstance(crashed, Failure) and not crashed.retryable
        assert crashed.message.endswith("it ended with exit 7: last words (twice)")
    assert [one.text for one in second if isinstance(one, ToolAnswer)] == [*"0123456"]


def test_a_tool_that_takes_too_long_fails_and_the_others_go_on(tmp_path: Path):
    async def whole() -> tuple[ToolAnswer | Failure, ToolAnswer]:
        server = McpServer(config(tmp_path, request_timeout=2.0))
        found = await tools_of(server)
        late = await found["hang"].use({}, scope())
        said = await answer(found["echo"], text="on")
        await server.close()
        return late, said

    late, said = asyncio.run(whole())
    assert isinstance(late, Failure)
    assert (late.kind, late.blame) == ("timeout", "infrastructure")
    assert late.message == "the server `shop` did not answer `hang` within 2 seconds"
    assert said.text == "on"
    assert len(pids(tmp_path)) == 1


@pytest.mark.parametrize(
    ("words", "kind", "message"),
    [
        (("no-such-command",), "harness", "no such file or directory: no-such-command"),
        ((sys.executable, "-c", "exit('oh no')"), "harness", "it ended with exit 1: oh no"),
        (("sleep", "300"), "timeout", "it did not answer within 1 second"),
    ],
)
def test_a_server_that_cannot_be_opened_is_told(
    tmp_path: Path, words: tuple[str, ...], kind: str, message: str
):
    command, *args = words

    async def whole() -> object:
        limit = 1.0 if kind == "timeout" else 30.0
        server = McpServer(
            McpConfig("shop", tmp_path, "stdio", command, tuple(args), timeout=limit)
        )
        try:
            return await server.tools()
        finally:
            await server.close()

    failure = asyncio.run(whole())
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.blame) == (kind, "infrastructure")
    assert failure.message == f"cannot open the server `shop`: {message}"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"env": {"KEY": "${NOWHERE_SET}"}}, "the variable NOWHERE_SET is not set"),
        ({"env_file": "gone.env"}, "no such file or directory: {folder}/gone.env"),
        ({"transport": "websocket"}, "servers are not spoken to by websocket; most that offer it"),
    ],
)
def test_settings_that_cannot_be_used_are_told_and_not_tried_again(
    tmp_path: Path, settings: dict[str, Any], words: str
):
    failure = asyncio.run(McpServer(config(tmp_path, **settings)).tools())
    assert isinstance(failure, Failure)
    assert words.format(folder=tmp_path) in failure.message
    assert not failure.retryable
    assert not (tmp_path / "pids").exists()


def test_without_the_sdk_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "mcp", None)
    failure = asyncio.run(McpServer(config(tmp_path)).tools())
    assert isinstance(failure, Failure)
    assert (
        failure.message
        == f"cannot open the server `shop`: that takes mcp: {install_command('mcp')}"
    )
    assert not failure.retryable


def test_tools_of_one_name_are_told_apart_by_their_servers(tmp_path: Path):
    async def whole() -> list[str]:
        server = McpServer(config(tmp_path))
        found = await tools_of(server)
        await server.close()
        tools = told_apart([ScriptedTool("echo", "mine"), found["echo"], found["page"]])
        return [tool.offer.name for tool in tools]

    assert asyncio.run(whole()) == ["echo", "shop_echo", "page"]
