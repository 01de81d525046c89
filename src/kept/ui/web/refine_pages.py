"""Refinement pages (BEST, sessions, form, running jobs), and the source's JSON API."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, cast

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kept.core.schedules.refine import MOST, tier_of
from kept.orchestrator.experiments import SESSION, sessions_of
from kept.orchestrator.refine.attempt import findings_of
from kept.orchestrator.refine.proposer import MIXED, ModelPair
from kept.store.overview import Glance
from kept.store.reader import Run
from kept.ui.web import run_source
from kept.ui.web.agent_pages import Now, now_of
from kept.ui.web.auth import Refused
from kept.ui.web.charts import loss_shown
from kept.ui.web.refine_jobs import (
    TIERS,
    Iterations,
    ModelName,
    Pair,
    Preferences,
    Started,
    Wanted,
    problems_in,
)
from kept.ui.web.refine_sessions import (
    Refining,
    Seed,
    best_manifest,
    best_shown,
    documents,
    shown,
    task_best_manifest,
    tasks_of,
)
from kept.ui.web.site import LINKS, Site, check_json, gone, in_thread

FALLBACK = "the seed run's"


@dataclass(frozen=True, slots=True)
class Form:
    """Values of the form; after an error, as they were sent."""

    iterations: str
    manager: str = ""
    worker: str = ""
    tiered: bool = False
    tiers: tuple[tuple[str, str, str], ...] = ()
    """Name, manager and worker of each tier."""
    start: str = "best"
    problems: tuple[str, ...] = ()


def usual(site: Site) -> Form:
    """Form filled from the preferences."""
    chosen = site.preferences.read()
    tiers = tuple((tier, pair.manager, pair.worker) for tier, pair in chosen.tiers.items())
    return Form(str(chosen.refinement_default_iterations), tiers=tiers)


def refine_view(site: Site, seed: Seed, form: Form | None = None) -> dict[str, object]:
    """Template values of a run's refinement page."""
    of = site.seeds.all_refinements()
    found = documents(seed, site.runs.home)
    running = site.refiner.running(seed)
    run = site.seeds.finished(seed)
    told = [shown(one, of) for one in found]
    # one scale for all loss bars on the page
    losses = [one.loss or 0.0 for session in told for one in session.tried]
    widest = max((0.01, run.loss.total if run else 0.0, *losses))
    return {
        "title": f"refine {seed.id}",
        "seed": seed,
        "seed_run": run,
        "seed_loss": loss_shown(run.loss.parts(), widest) if run else None,
        "findings": findings_of(run) if run else None,
        "obstacle": site.seeds.obstacle(seed),
        "best": best_shown(seed.folder, found),
        "sessions": told,
        "bars": {
            (s.id, one.k): loss_shown({**one.parts, "total": one.loss}, widest)
            for s in told
            for one in s.tried
            if one.loss is not None
        },
        "running": running is not None,
        "starting": isinstance(running, Started),
        "now": _now(site, running) if isinstance(running, Refining) else None,
        "now_run": running.run if isinstance(running, Refining) else "",
        "trouble": site.refiner.trouble(seed),
        "form": form or usual(site),
        "most": MOST,
        "schedules": {n: [tier_of(k, n) for k in range(1, n + 1)] for n in range(1, MOST + 1)},
        "fallback": FALLBACK,
    }


def _now(site: Site, running: Refining) -> Now | None:
    told: Glance = site.runs.glance(running.run)
    with Run(told.folder, told) as run:
        return now_of(run, told)


def refine_mark(site: Site, seed: Seed) -> object:
    """Change mark: differs once a session, BEST or the running refinement changes."""
    place = seed.folder / "refinement_sessions"
    files = [*place.glob("*.json"), seed.folder / "BEST"] if place.is_dir() else []
    # any task counts: finding those that started here costs more than rendering a page again
    files += [sessions_of(task) / SESSION for task in tasks_of(site.runs.home)]
    marks = [_stamp(path) for path in files]
    running = site.refiner.running(seed)
    if isinstance(running, Refining):
        return [marks, running.run, _stamp(running.folder / "rollouts.jsonl")]
    return [marks, "starting" if running is not None else ""]


def _stamp(path: Path) -> object:
    try:
        found = path.stat()
    except OSError:
        return -1
    return [path.name, found.st_mtime_ns, found.st_size]


log = logging.getLogger("kept")

STARTS = ("best", "last", "seed")
"""Starting points that the form offers."""

REFUSALS: dict[int | str, dict[str, Any]] = {
    404: {"description": "there is no such run"},
    409: {"description": "it cannot be refined, or is being refined"},
    415: {"description": "not JSON"},
}


class RefineBody(BaseModel):
    """Request for a refinement, in the source's field names."""

    model_config = ConfigDict(extra="forbid")

    iterations: Iterations | None = None
    model: ModelName | None = None
    worker_model: ModelName | None = None
    tier_low: Pair | None = None
    tier_mid: Pair | None = None
    tier_high: Pair | None = None

    @property
    def tiers(self) -> dict[str, ModelPair] | None:
        """Pairs of the tiers; None if no tier is given."""
        given = {tier: getattr(self, f"tier_{tier}") for tier in TIERS}
        if all(pair is None for pair in given.values()):
            return None
        return {tier: (pair or Pair()).names for tier, pair in given.items()}

    @property
    def mixed(self) -> bool:
        """True if plain models are given that the tiers override."""
        return self.tiers is not None and bool(self.model or self.worker_model)

    def wanted(self, usual: int) -> Wanted:
        """Request in the form that the refiner takes."""
        pair = ModelPair(self.model or "", self.worker_model or "")
        return Wanted(self.iterations or usual, pair, self.tiers)


class Accepted(BaseModel):
    """A refinement that was started."""

    session_id: str | None
    run_id: str
    status: str = "started"
    warnings: list[str] = Field(default_factory=list)


class Sessions(BaseModel):
    """Sessions and best deliverable of a run."""

    sessions: list[dict[str, Any]]
    best: dict[str, Any] | None


def add_refine(app: FastAPI, site: Site) -> None:
    """Register all routes of refinement."""
    _add_api(app, site)
    _add_pages(app, site)
    _add_settings(app, site)


def _add_api(app: FastAPI, site: Site) -> None:
    @app.post("/api/experiments/{run_id}/refine", status_code=202, responses=REFUSALS)
    def refine(run_id: str, body: RefineBody, request: Request) -> Accepted:
        check_json(request)
        seed = site.seeds.find(run_id)
        if body.mixed:
            log.warning(MIXED)
        wanted = body.wanted(site.preferences.read().refinement_default_iterations)
        session = site.refiner.start(seed, wanted)
        return Accepted(session_id=session, run_id=seed.id, warnings=[MIXED] if body.mixed else [])

    @app.get("/api/experiments/{run_id}/refinement_sessions", responses=REFUSALS)
    def sessions(run_id: str) -> Sessions:
        seed = site.seeds.find(run_id)
        found = documents(seed, site.runs.home)
        best = best_manifest(seed.folder) or task_best_manifest(found)
        rows = [dict(one.told) for one in found]
        return Sessions(sessions=rows, best=dict(best) if best is not None else None)

    @app.post("/api/experiments/{run_id}/refine/cancel", status_code=202, responses=REFUSALS)
    def cancel(run_id: str, request: Request) -> dict[str, str]:
        check_json(request)
        if not site.refiner.cancel(site.seeds.find(run_id)):
            raise Refused(409, f"no refinement of run {run_id} goes on")
        return {"status": "interrupted"}


def _add_pages(app: FastAPI, site: Site) -> None:
    @app.get("/runs/{run}/refine", response_class=HTMLResponse, responses=REFUSALS)
    def page(run: str) -> HTMLResponse:
        return site.page("refine.html", **refine_view(site, site.seeds.find(run)))

    @app.post("/runs/{run}/refine", include_in_schema=False)
    async def start(run: str, request: Request) -> Response:
        fields = await site.form(request)
        return await in_thread(lambda: _started(site, run, fields))

    @app.post("/runs/{run}/refine/cancel", include_in_schema=False)
    async def cancel(run: str, request: Request) -> Response:
        await site.form(request)
        seed = site.seeds.find(run)
        await in_thread(lambda: site.refiner.cancel(seed))
        return RedirectResponse(LINKS.refine(seed.id), 303)

    @app.get("/runs/{run}/refine/events", include_in_schema=False)
    async def events(run: str, request: Request) -> StreamingResponse:
        seed = await in_thread(lambda: site.seeds.find(run))
        look = run_source.stream(
            lambda: refine_mark(site, seed), run_source.EVERY_REFINE, gone(request)
        )
        return StreamingResponse(look, media_type="text/event-stream")


def _started(site: Site, run: str, fields: dict[str, str]) -> Response:
    seed = site.seeds.find(run)
    form = _form(fields)
    try:
        body = _body(fields)
    except ValidationError as error:
        return _again(site, run, form, tuple(problems_in(error)), 422)
    usual = site.preferences.read().refinement_default_iterations
    wanted = body.wanted(usual)
    wanted = Wanted(wanted.iterations, wanted.pair, wanted.tiers, form.start)
    try:
        site.refiner.start(seed, wanted)
    except Refused as error:
        told = (error.message, *([error.hint] if error.hint else []))
        return _again(site, run, form, told, error.status)
    return RedirectResponse(f"{LINKS.refine(seed.id)}#now", 303)


def _again(
    site: Site, run: str, form: Form, problems: tuple[str, ...], status: int
) -> HTMLResponse:
    filled = Form(
        form.iterations, form.manager, form.worker, form.tiered, form.tiers, form.start, problems
    )
    page = site.page("refine.html", **refine_view(site, site.seeds.find(run), filled))
    page.status_code = status
    return page


def _form(fields: dict[str, str]) -> Form:
    return Form(
        fields.get("iterations", ""),
        fields.get("model", ""),
        fields.get("worker_model", ""),
        fields.get("tiered") == "on",
        tuple(
            (tier, fields.get(f"tier_{tier}.manager", ""), fields.get(f"tier_{tier}.worker", ""))
            for tier in TIERS
        ),
        start if (start := fields.get("from", "")) in STARTS else "best",
    )


def _body(fields: dict[str, str]) -> RefineBody:
    form = _form(fields)
    told: dict[str, Any] = {"iterations": _number(form.iterations)}
    if form.tiered:
        told |= {
            f"tier_{tier}": {"manager": manager, "worker": worker}
            for tier, manager, worker in form.tiers
        }
    else:
        told |= {"model": form.manager, "worker_model": form.worker}
    return RefineBody.model_validate(told)


def _number(text: str) -> object:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 6 else text


def _add_settings(app: FastAPI, site: Site) -> None:
    def view(chosen: Preferences, **more: object) -> HTMLResponse:
        told: dict[str, object] = {"saved": False, "problems": (), **more}
        return site.page("settings.html", title="settings", chosen=chosen, tiers=TIERS, **told)

    @app.get("/settings", response_class=HTMLResponse)
    def settings(saved: Annotated[str, Field(max_length=3)] = "") -> HTMLResponse:
        return view(site.preferences.read(), saved=saved == "yes")

    @app.post("/settings", include_in_schema=False)
    async def keep(request: Request) -> Response:
        fields = await site.form(request)
        told: dict[str, Any] = {
            "refinement_default_iterations": _number(fields.get("iterations", ""))
        }
        for tier, manager, worker in _form(fields).tiers:
            told[f"refinement_tier_{tier}"] = {"manager": manager, "worker": worker}
        try:
            chosen = Preferences.model_validate(told)
        except ValidationError as error:
            sent = Preferences.model_construct(**_as_sent(told))
            page = view(sent, problems=problems_in(error))
            page.status_code = 422
            return page
        await in_thread(lambda: site.preferences.write(chosen))
        return RedirectResponse("/settings?saved=yes", 303)

    @app.get("/api/settings")
    def settings_json() -> Preferences:
        return site.preferences.read()

    @app.post("/api/settings", responses={415: REFUSALS[415]})
    def keep_json(chosen: Preferences, request: Request) -> Preferences:
        check_json(request)
        site.preferences.write(chosen)
        return chosen


def _as_sent(told: dict[str, Any]) -> dict[str, Any]:
    """Preferences as the form sent them, without validation, to fill the form again."""
    found: dict[str, Any] = {}
    for name, one in told.items():
        pair = cast("dict[str, str]", one) if isinstance(one, dict) else None
        found[name] = one if pair is None else Pair.model_construct(None, **pair)
    return found
