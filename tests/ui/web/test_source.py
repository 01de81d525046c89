"""Requests at the same time over a run that is being written, and those that break."""

import asyncio
import json
import shutil
import sys
import threading
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI

from kept.core.event import StepClosed, StepOpened
from kept.run import start
from kept.store import codec
from kept.store.home import Home
from kept.store.overview import Glance
from kept.ui.web.app import make_app
from kept.ui.web.run_source import Runs
from tests.engine.worlds import make_plan


class Growing:
    """A run whose journal is written a line at a time."""

    def __init__(self, home: Home, whole: Path) -> None:
        self.home, self.name = home, whole.name
        self._folder = home.runs / whole.name
        shutil.copytree(whole, self._folder)
        (self._folder / "steps.idx").unlink()
        path = self._folder / "journal.jsonl"
        self.lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(self.lines[0])
        self._written = 1

    def grow(self) -> bool:
        """One more line; False where that was all."""
        if self._written == len(self.lines):
            return False
        with (self._folder / "journal.jsonl").open("ab") as file:
            file.write(self.lines[self._written])
        self._written += 1
        return True

    def till(self, wanted: type) -> None:
        while not isinstance(codec.decode_event(self.lines[self._written - 1]), wanted):
            assert self.grow()


@pytest.fixture
def growing(tmp_path: Path) -> Growing:
    plan, _, _ = make_plan(4, 40, 3)
    whole = asyncio.run(start(plan, Home(tmp_path / "whole"))).folder
    return Growing(Home(tmp_path / "home"), whole)


@pytest.fixture
def hasty() -> Generator[None]:
    """Threads that take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def seen(told: Glance) -> object:
    rows = len(told.rows)
    opened = [one.step for one in told.open]
    return rows, opened, told.spend, told.keeps, told.best, told.elapsed, told.size


def test_what_a_request_was_given_stays_while_another_reads_on(growing: Growing):
    runs = Runs(growing.home)
    growing.till(StepOpened)
    first = runs.glance(growing.name)
    before = seen(first)
    growing.till(StepClosed)
    later = runs.glance(growing.name)
    assert len(later.rows) == 1
    assert seen(first) == before
    assert runs.glance(growing.name) is later, "what is drawn of it is drawn once"
    while growing.grow():
        pass
    assert runs.rows()[0].steps == len(runs.glance(growing.name).rows) > 1
    assert (len(later.rows), seen(first)) == (1, before)
    assert later.stopped is None, "nor is it told how the run ended"


@pytest.mark.usefixtures("hasty")
def test_requests_at_the_same_time_see_a_run_that_fits_together(growing: Growing):
    runs = Runs(growing.home)
    wrong: list[str] = []
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            told = runs.glance(growing.name)
            try:
                one, steps = seen(told), [one.step for one in told.open]
                if steps != list(range(len(told.rows), len(told.rows) + len(steps))):
                    wrong.append(f"{len(told.rows)} rows, and open are {steps}")
                if seen(told) != one:
                    wrong.append("it changed on the way")
            except (RuntimeError, LookupError) as error:
                wrong.append(repr(error))

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    while growing.grow():
        runs.glance(growing.name)
    done.set()
    for thread in threads:
        thread.join()
    assert not wrong, wrong[:3]


def asked(app: FastAPI, path: str) -> tuple[int, str]:
    """What somebody is answered who goes away as soon as the request is made."""
    sent: list[Any] = []
    scope: dict[str, Any] = {
        "type": "http", "asgi": {"version": "3.0", "spec_version": "2.4"}, "method": "GET",
        "path": path, "raw_path": path.encode(), "query_string": b"", "headers": [],
        "http_version": "1.1", "scheme": "http", "server": ("127.0.0.1", 80),
        "client": ("127.0.0.1", 1), "root_path": "",
    }  # fmt: skip

    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    async def whole() -> None:
        with suppress(ZeroDivisionError):  # told, and then raised for the server's own log
            await app(scope, receive, send)

    asyncio.run(whole())
    return sent[0]["status"], b"".join(one.get("body", b"") for one in sent[1:]).decode()


def broken() -> int:
    return 1 // 0


def test_a_program_is_told_of_a_mistake_of_ours_as_json(tmp_path: Path):
    app = make_app(Runs(Home(tmp_path)))
    for path in ("/api/broken", "/broken"):
        app.get(path)(broken)
    status, text = asked(app, "/api/broken")
    assert status == 500
    told = json.loads(text)
    assert "ZeroDivisionError" in told["error"] and "please report this" in told["hint"]
    status, text = asked(app, "/broken")
    assert status == 500 and text.lstrip().startswith("<!doctype html>")


def test_the_stream_of_changes_needs_no_server_that_says_when_it_ends(growing: Growing):
    app = make_app(Runs(growing.home))
    for path in ("/events", f"/runs/{growing.name}/events"):
        status, text = asked(app, path)
        assert status == 200 and "event: hello" in text
