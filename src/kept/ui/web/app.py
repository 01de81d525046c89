"""Routes: pages for people, and the same facts as JSON for programs."""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import FastAPI, Query, Request
from fastapi.exception_handlers import (
    http_exception_handler,
    request_validation_exception_handler,
)
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException

from kept._version import __version__
from kept.core.text import one_line
from kept.errors import KeptError, SetupError
from kept.results.steps import step_detail
from kept.store.overview import Glance
from kept.store.reader import Run
from kept.ui.report.format import recipe_word
from kept.ui.report.step import step_json
from kept.ui.web import cases_page, run_page, run_source, runs_page, step_page, training_pages
from kept.ui.web.auth import Refused
from kept.ui.web.experiments import add_experiments
from kept.ui.web.refine_pages import add_refine
from kept.ui.web.run_page import Asked, Kind
from kept.ui.web.run_source import Runs
from kept.ui.web.site import LINKS, Site, gone
from kept.ui.web.templates import HERE, Links

log = logging.getLogger("kept")

Page = Annotated[int, Query(ge=1, le=100_000)]
Step = int
CHOICES = 50
"""Maximum number of runs offered on the comparison page; the list of runs has all."""
FOLLOW = "the list of runs leads to every page there is"
NOT_FOUND: dict[int | str, dict[str, Any]] = {404: {"description": "there is no such thing"}}


def make_app(runs: Runs) -> FastAPI:
    """The app; its requests have already passed the guard."""
    app = FastAPI(title="kept view", version=__version__, docs_url=None, redoc_url=None)
    site = Site(runs)
    # True if streams have to end; the server replaces it by a function of its own
    app.state.ending = lambda: False
    app.mount("/static", StaticFiles(directory=HERE / "static"), name="static")
    _add_list(app, site)
    _add_run(app, site)
    _add_cases(app, site)
    _add_looks(app, site)
    _add_events(app, site)
    add_refine(app, site)
    add_experiments(app, site)
    app.add_exception_handler(KeptError, _told(site))
    app.add_exception_handler(RequestValidationError, _unread(site))
    app.add_exception_handler(HTTPException, _nowhere(site))
    app.add_exception_handler(Exception, _broken(site))
    return app


def _for_program(request: Request) -> bool:
    return request.url.path.startswith("/api/")


def _told(site: Site) -> Callable[[Request, Exception], Awaitable[Response]]:
    """Handler of Kept's own errors: a page with the hint, or JSON for programs."""

    async def answer(request: Request, error: Exception) -> Response:
        assert isinstance(error, KeptError)
        status = 404 if isinstance(error, SetupError) else 409
        status = error.status if isinstance(error, Refused) else status
        if _for_program(request):
            told = {"error": error.message, "hint": error.hint}
            return JSONResponse(told, status_code=status)
        page = site.page("error.html", title="not here", message=error.message, hint=error.hint)
        page.status_code = status
        return page

    return answer


def _unread(site: Site) -> Callable[[Request, Exception], Awaitable[Response]]:
    """Handler of invalid parameters in an address."""

    async def answer(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        if _for_program(request):
            return await request_validation_exception_handler(request, error)
        wrong: dict[str, Any] = error.errors()[0]
        message = f"`{one_line(str(wrong.get('input')), 80)}` is no {wrong['loc'][-1]}"
        page = site.page("error.html", title="not here", message=message, hint=FOLLOW)
        page.status_code = 422
        return page

    return answer


def _nowhere(site: Site) -> Callable[[Request, Exception], Awaitable[Response]]:
    """Handler of addresses without a page."""

    async def answer(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        if error.status_code != 404 or _for_program(request):
            return await http_exception_handler(request, error)
        message = f"there is no page {one_line(request.url.path, 80)}"
        page = site.page("error.html", title="not here", message=message, hint=FOLLOW)
        page.status_code = 404
        return page

    return answer


def _broken(site: Site) -> Callable[[Request, Exception], Awaitable[Response]]:
    """Handler of bugs: one line in the log and an error page; other pages keep working."""

    async def answer(request: Request, error: Exception) -> Response:
        words = f"this page could not be made: {type(error).__name__}: {error}"
        log.error("%s: %s", request.url.path, words)
        hint = "the run is intact; please report this with the address of the page"
        if _for_program(request):
            return JSONResponse({"error": words, "hint": hint}, status_code=500)
        page = site.page("error.html", title="not made", message=words, hint=hint)
        page.status_code = 500
        return page

    return answer


def _add_list(app: FastAPI, site: Site) -> None:
    @app.get("/", response_class=HTMLResponse, include_in_schema=True)
    def index(
        q: str = "", state: str = "", kind: str = "", sort: str = "newest", page: Page = 1
    ) -> HTMLResponse:
        asked = runs_page.Query(q, state, kind, sort, page)
        view = runs_page.runs_view(site.runs.rows(), asked, site.runs.home.runs)
        return site.page("runs.html", title="runs", home=str(site.runs.home.path), **view)

    @app.get("/api/runs")
    def all_runs(limit: Annotated[int, Query(ge=1, le=10_000)] = 100) -> list[dict[str, Any]]:
        rows = site.runs.rows()[:limit]
        return [{**asdict(row), "recipe": recipe_word(row.recipe)} for row in rows]


def _add_run(app: FastAPI, site: Site) -> None:
    @app.get("/runs/{run}", response_class=HTMLResponse, responses=NOT_FOUND)
    def run_of(run: str, show: str = "all", page: Page = 1) -> HTMLResponse:
        past, told, kind = site.opened(run)
        with past:
            view = run_view(past, told, kind, LINKS, Asked(show, page))
        return site.page(kind.template, **view)

    @app.get("/api/runs/{run}", responses=NOT_FOUND)
    def run_json(run: str) -> dict[str, Any]:
        past, told, kind = site.opened(run)
        with past:
            return {
                **run_page.top(told, kind),
                "headline": kind.headline(past, told),
                "seed": told.seed,
                "best": told.best,
                "best_step": told.best_step,
                "values": told.values,
                "gain": told.gain._asdict() if told.gain else None,
                "steps": len(told.rows),
                "open": [one.step for one in told.open],
                "keeps": told.keeps,
                "spend": asdict(told.spend),
            }

    @app.get("/runs/{run}/steps/{step}", response_class=HTMLResponse, responses=NOT_FOUND)
    def step_of(run: str, step: Step) -> HTMLResponse:
        past, told, kind = site.opened(run)
        with past:
            check_step(told, step)
            view = kind.step(past, step, step_page.step_view(past, told, step, LINKS))
        head = run_page.top(told, kind)
        return site.page("step.html", title=f"step {step} of {run}", **head, **view)

    @app.get("/api/runs/{run}/steps/{step}", responses=NOT_FOUND)
    def step_as_json(run: str, step: Step) -> dict[str, Any]:
        past, told, _ = site.opened(run)
        with past:
            check_step(told, step)
            return step_json(step_detail(past, step))


def _add_cases(app: FastAPI, site: Site) -> None:
    @app.get("/runs/{run}/cases", response_class=HTMLResponse, responses=NOT_FOUND)
    def cases(
        run: str,
        show: Literal["kept", "all"] | None = None,
        only: str = "all",
        before: Annotated[int | None, Query(ge=0)] = None,
        page: Page = 1,
    ) -> HTMLResponse:
        past, told, kind = site.opened(run)
        past.close()
        usual = "kept" if told.keeps > 1 else "all"
        view = cases_page.matrix(told, show or usual, only, before, page)
        return site.page("cases.html", title=f"cases of {run}", **run_page.top(told, kind), **view)

    @app.get(
        "/runs/{run}/steps/{step}/cases/{case:path}",
        response_class=HTMLResponse,
        responses=NOT_FOUND,
    )
    def cell(run: str, step: Step, case: str) -> HTMLResponse:
        past, told, kind = site.opened(run)
        with past:
            view = cases_page.cell_view(past, told, step, case)
        head = run_page.top(told, kind)
        return site.page("cell.html", title=f"{case}, step {step} of {run}", **head, **view)


def _add_looks(app: FastAPI, site: Site) -> None:
    @app.get("/runs/{run}/numbers", response_class=HTMLResponse, responses=NOT_FOUND)
    def numbers(run: str) -> HTMLResponse:
        past, told, kind = site.opened(run)
        past.close()
        view = training_pages.numbers_view(told, LINKS)
        head = run_page.top(told, kind)
        return site.page("numbers.html", title=f"numbers of {run}", **head, **view)

    @app.get("/compare", response_class=HTMLResponse, responses=NOT_FOUND)
    def compare(run: Annotated[list[str] | None, Query(max_length=3)] = None) -> HTMLResponse:
        names = list(dict.fromkeys(run or ()))
        if len(names) < 2:
            rows = site.runs.rows()[:CHOICES]
            return site.page("choose.html", title="compare", rows=rows, chosen=names)
        view = cases_page.compare_view([_side(site, name) for name in names])
        return site.page("compare.html", title="compare", **view)


def _side(site: Site, name: str) -> cases_page.Side:
    past, told, kind = site.opened(name)
    with past:
        headline = kind.headline(past, told)
    return cases_page.Side(told, kind, headline, cases_page.case_values(told))


def run_view(past: Run, told: Glance, kind: Kind, links: Links, asked: Asked) -> dict[str, object]:
    """Template values of a run's page."""
    view = run_page.overview(told, links) | run_page.top(told, kind)
    view |= {"title": told.id, "headline": kind.headline(past, told)}
    if kind.steps:
        view["steps"] = run_page.step_table(told, asked.show, asked.page)
    return view | {"body": kind.body(past, told, asked)}


def check_step(told: Glance, step: int) -> None:
    """Refuse a step that the run does not have."""
    last = len(told.rows) + len(told.open) - 1
    if not 0 <= step <= last:
        there = f"the last one is {last}" if last >= 0 else "it has none yet"
        raise SetupError(f"run {told.id} has no step {step}: {there}", hint="its page lists them")


def _add_events(app: FastAPI, site: Site) -> None:
    # streams never end, so they are left out of the schema that a program would walk through
    @app.get("/events", include_in_schema=False)
    async def events(request: Request) -> StreamingResponse:
        look = run_source.stream(
            lambda: run_source.list_mark(site.runs), run_source.EVERY_LIST, gone(request)
        )
        return StreamingResponse(look, media_type="text/event-stream")

    @app.get("/runs/{run}/events", include_in_schema=False)
    async def run_events(run: str, request: Request) -> StreamingResponse:
        folder: Path = site.runs.folder(run)
        look = run_source.stream(
            lambda: run_source.run_mark(folder), run_source.EVERY, gone(request)
        )
        return StreamingResponse(look, media_type="text/event-stream")
