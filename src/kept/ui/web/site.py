"""Shared state of web requests: runs, templates, permissions, actions, streams, slow work."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from typing import TypeVar
from urllib.parse import parse_qsl

from fastapi import Request
from fastapi.responses import HTMLResponse

from kept.store.overview import Glance
from kept.store.reader import Run
from kept.ui.web.auth import Refused
from kept.ui.web.kinds import Kind, kind_of
from kept.ui.web.refine_jobs import Refiner, Store
from kept.ui.web.refine_sessions import Seeds
from kept.ui.web.run_source import Runs
from kept.ui.web.templates import Links, environment, render

LINKS = Links()
FORM = "application/x-www-form-urlencoded"
LONGEST = 64_000
"""Maximum bytes of a form."""


class Site:
    """Shared objects that requests need."""

    def __init__(self, runs: Runs) -> None:
        self.runs = runs
        self.env = environment(runs.home.path.resolve().parent)
        self.preferences = Store(runs.home)
        self.seeds = Seeds(runs)
        self.refiner = Refiner(self.seeds)
        self._act = secrets.token_urlsafe(24)
        """Secret token in the forms of these pages, against forms of other sites."""

    def page(self, template: str, **values: object) -> HTMLResponse:
        """Page rendered from its template."""
        return HTMLResponse(render(self.env, template, LINKS, act=self._act, **values))

    def opened(self, name: str) -> tuple[Run, Glance, Kind]:
        """Open a run for reading; the caller closes it."""
        told = self.runs.glance(name)
        return Run(told.folder, told), told, kind_of(told.begun.recipe)

    async def form(self, request: Request) -> dict[str, str]:
        """Fields of one of our forms; raises `Refused` if another page may have sent them."""
        given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if given != FORM:
            raise Refused(415, "this takes a form", hint="programs have the addresses below /api")
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > LONGEST:
                raise Refused(413, "that is more than any form here holds")
        rows = parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True)
        fields = dict(rows)
        if not secrets.compare_digest(fields.pop("act", "").encode(), self._act.encode()):
            raise Refused(
                403, "this form is of an earlier `kept view`", hint="load the page again and repeat"
            )
        return fields


def check_json(request: Request) -> None:
    """Refuse non-JSON requests: browsers do not let forms of other sites send JSON."""
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given != "application/json":
        raise Refused(415, "this takes JSON", hint="send it as `content-type: application/json`")


T = TypeVar("T")


def gone(request: Request) -> Callable[[], Awaitable[bool]]:
    """Function that is true once the client has left or the server is stopping."""

    async def look() -> bool:
        return request.app.state.ending() or await request.is_disconnected()

    return look


async def in_thread(work: Callable[[], T]) -> T:
    """Run slow work in a thread, so that the server keeps answering."""
    return await asyncio.to_thread(work)
