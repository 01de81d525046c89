"""One request and its response, byte by byte; test_faults.py has what providers answer."""

import asyncio
import base64
import gzip
import socket
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from itertools import takewhile
from typing import Any

import pytest

from kept.models.http import Endpoint, post
from kept.models.protocol import Trouble

JSON = b'{"said": "yes"}'


def reply(body: bytes = JSON, *lines: str, status: str = "200 OK") -> bytes:
    head = (f"HTTP/1.1 {status}", "Content-Type: application/json; charset=utf-8", *lines)
    return "\r\n".join((*head, f"Content-Length: {len(body)}", "", "")).encode() + body


class Said:
    """What was asked: each request with the number of the connection that it came by."""

    def __init__(self) -> None:
        self.url = ""
        self.asked: list[tuple[int, bytes]] = []
        self.told = threading.Event()
        """Set when the first answer was sent, or what there is of it."""
        self.closed = threading.Event()
        """Set when the first connection has ended."""


@contextmanager
def saying(replies: Sequence[bytes]) -> Generator[Said]:
    """A server that answers with these bytes, one after the other.

    It closes after half a one, and sends nothing more where it stops.
    """
    left, said = iter(replies), Said()
    open_ones: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def begin(work: Callable[..., None], *given: object) -> None:
        threads.append(threading.Thread(target=work, args=given, daemon=True))
        threads[-1].start()

    def serve(one: socket.socket, n: int) -> None:
        # who asks may hang up at any time
        with suppress(OSError), one.makefile("rb") as file:
            while head := b"".join(takewhile(bool, iter(file.readline, b"\r\n"))):
                size = next(
                    int(line.partition(b":")[2])
                    for line in head.lower().splitlines()
                    if line.startswith(b"content-length:")
                )
                said.asked.append((n, head + file.read(size)))
                told = next(left)
                one.sendall(told.removesuffix(b"HALF").removesuffix(b"STOP"))
                said.told.set()
                if told.endswith(b"HALF") or b"Connection: close" in told:
                    break
        one.close()
        said.closed.set()

    with socket.create_server(("127.0.0.1", 0)) as server:
        said.url = f"http://127.0.0.1:{server.getsockname()[1]}/v1/chat?a=b"

        def accept() -> None:
            with suppress(OSError):
                while True:
                    one, _ = server.accept()
                    open_ones.append(one)
                    begin(serve, one, len(open_ones))

        begin(accept)
        yield said
        server.shutdown(socket.SHUT_RDWR)
        threads[0].join()
        for one in open_ones:
            with suppress(OSError):  # it is closed already
                one.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join()


def endpoint(said: Said, seconds: float = 60.0) -> Endpoint:
    headers = {"content-type": "application/json"}
    return Endpoint("m", said.url, headers, "KEY", seconds, seconds)


def ask(said: Said, times: int = 1, **headers: str) -> list[Any]:
    """The answers to so many calls, one after the other; or what was the trouble."""

    async def once() -> Any:
        try:
            return await post(endpoint(said), headers, b"{}")
        except Trouble as trouble:
            return trouble.failure.kind

    async def scenario() -> list[Any]:
        return [await once() for _ in range(times)]

    return asyncio.run(scenario())


YES = {"said": "yes"}
CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
SWITCHED = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"
UNTIL_CLOSED = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize(
    ("told", "heard", "connections"),
    [
        pytest.param(reply(), YES, 1, id="whole"),
        pytest.param(CHUNKED + b'6\r\n{"said\r\n9\r\n": "yes"}\r\n0\r\n\r\n', YES, 1, id="chunks"),
        pytest.param(reply(gzip.compress(JSON), "Content-Encoding: gzip"), YES, 1, id="packed"),
        pytest.param(b"HTTP/1.1 103 Early Hints\r\n\r\n" + reply(), YES, 1, id="behind hints"),
        pytest.param(reply(JSON, "Connection: close"), YES, 2, id="the last by its connection"),
        pytest.param(UNTIL_CLOSED + JSON, YES, 2, id="up to the end"),
        pytest.param(reply()[:-4] + b"HALF", "network", 2, id="half"),
        pytest.param(b"Hello, who is there?\r\n\r\nHALF", "network", 2, id="no HTTP"),
        pytest.param(reply(status="500 No"), "server", 1, id="an error"),
        pytest.param(SWITCHED, "harness", 2, id="another protocol"),
    ],
)
def test_a_connection_is_used_again_only_after_a_whole_answer(
    told: bytes, heard: object, connections: int
):
    with saying([told, reply()]) as said:
        assert ask(said, 2) == [heard, YES]
    assert [n for n, _ in said.asked] == [1, connections]


@pytest.mark.parametrize("cancelled", [False, True], ids=["too late", "cancelled"])
def test_a_connection_is_not_used_again_after_an_answer_that_was_given_up(cancelled: bool):
    async def first(said: Said) -> object:
        asking = asyncio.ensure_future(post(endpoint(said, 60.0 if cancelled else 0.3), {}, b"{}"))
        if cancelled:
            await asyncio.to_thread(said.told.wait, 60)
            await asyncio.sleep(0.05)
            asking.cancel()
        try:
            return await asking
        except Trouble as trouble:
            return trouble.failure.kind
        except asyncio.CancelledError:
            return "cancelled"

    async def scenario(said: Said) -> tuple[object, ...]:
        came = await first(said)
        closed = await asyncio.to_thread(said.closed.wait, 60)
        return came, closed, await post(endpoint(said), {}, b"{}")

    with saying([reply()[:-4] + b"STOP", reply()]) as said:
        came = asyncio.run(scenario(said))
    assert came == ("cancelled" if cancelled else "timeout", True, YES)
    assert [n for n, _ in said.asked] == [1, 2]


def test_what_is_sent_is_what_was_meant():
    with saying([reply()]) as said:
        ask(said, authorization="Bearer abc")
    [(_, asked)] = said.asked
    head, _, body = asked.partition(b"\r\n{")
    lines = head.decode().split("\r\n")
    assert lines[0] == "POST /v1/chat?a=b HTTP/1.1"
    named = {name.lower(): value.strip() for name, _, value in (li.partition(":") for li in lines)}
    assert named["authorization"] == "Bearer abc"
    assert named["content-type"] == "application/json"
    assert named["host"] == said.url.split("/")[2]
    assert named["content-length"] == "2"
    assert body == b"}"
    assert sum(line.lower().startswith("content-length") for line in lines) == 1


def test_a_login_in_an_address_is_sent_as_one():
    with saying([reply()]) as said:
        said.url = said.url.replace("://", "://me:word@")
        assert ask(said) == [YES]
    told = base64.b64encode(b"me:word")
    assert b"authorization: basic " + told.lower() in said.asked[0][1].lower()


def test_a_header_cannot_smuggle_in_another():
    with saying([reply()]) as said, pytest.raises(ValueError, match="header"):
        ask(said, authorization="Bearer a\r\nx-evil: 1")
    assert said.asked == []
