"""What the page of refinements shows: BEST, every session, the form, and what goes on now."""

from dataclasses import dataclass
from pathlib import Path

from kept.core.schedules.refine import MOST, tier_of
from kept.orchestrator.refine.findings import findings_of
from kept.orchestrator.refining import SESSION, sessions_of
from kept.store.glance import Glance
from kept.store.reader import Run
from kept.ui.web.loss_bar import loss_shown
from kept.ui.web.refinement_page import Now, now_of
from kept.ui.web.refining import Started
from kept.ui.web.seeds import Refining, Seed
from kept.ui.web.sessions import best_shown, documents, shown, tasks_of
from kept.ui.web.site import Site

FALLBACK = "the seed run's"


@dataclass(frozen=True, slots=True)
class Form:
    """What the form says; as it was sent, where something was wrong with it."""

    iterations: str
    manager: str = ""
    worker: str = ""
    tiered: bool = False
    tiers: tuple[tuple[str, str, str], ...] = ()
    """Name, manager and worker."""
    start: str = "best"
    problems: tuple[str, ...] = ()


def usual(site: Site) -> Form:
    """The form as preferences fill it."""
    chosen = site.preferences.read()
    tiers = tuple((tier, pair.manager, pair.worker) for tier, pair in chosen.tiers.items())
    return Form(str(chosen.refinement_default_iterations), tiers=tiers)


def refine_view(site: Site, seed: Seed, form: Form | None = None) -> dict[str, object]:
    """All of it."""
    of = site.seeds.all_refinements()
    found = documents(seed, site.runs.home)
    running = site.refiner.running(seed)
    run = site.seeds.finished(seed)
    told = [shown(one, of) for one in found]
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
    """What changes when a session, BEST or the refinement that goes on does."""
    place = seed.folder / "refinement_sessions"
    files = [*place.glob("*.json"), seed.folder / "BEST"] if place.is_dir() else []
    # of tasks, any: to read which of them started here costs more than a page that is made anew
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
