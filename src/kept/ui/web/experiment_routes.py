"""Experiments and prompt artifacts: their pages, and the same for programs."""

from collections.abc import Mapping

from fastapi import FastAPI
from fastapi.responses import HTMLResponse

from kept.ui.web.artifacts import Registry, registries
from kept.ui.web.charts import score_chart
from kept.ui.web.experiments_page import experiments_view, tree_json
from kept.ui.web.sessions import attempt_steps, task_documents, tasks_of
from kept.ui.web.site import Site


def add_experiments(app: FastAPI, site: Site) -> None:
    """All their addresses."""

    @app.get("/experiments", response_class=HTMLResponse)
    def experiments() -> HTMLResponse:
        home = site.runs.home
        own = {folder.name for folder in home.folders()}
        return site.page(
            "experiments.html",
            title="experiments",
            shown=experiments_view(home),
            own=own,
            attempts=_attempts(site),
            registries=registries(home),
        )

    @app.get("/prompts", response_class=HTMLResponse)
    def prompts() -> HTMLResponse:
        found = registries(site.runs.home)
        own = {folder.name for folder in site.runs.home.folders()}
        charts = {one.name: score_chart(one.losses, "mean loss", "epoch") for one in found}
        return site.page(
            "prompts.html", title="prompt artifacts", registries=found, charts=charts, own=own
        )

    @app.get("/api/experiments")
    def tree() -> list[Mapping[str, object]]:
        return tree_json(experiments_view(site.runs.home))

    @app.get("/api/prompts")
    def artifacts() -> list[Mapping[str, object]]:
        return [_json(one) for one in registries(site.runs.home)]


def _attempts(site: Site) -> Mapping[str, tuple[str, int]]:
    """Of every attempt of a task's refinements, the refinement and its step."""
    found = [one for task in tasks_of(site.runs.home) for one in task_documents(task)]
    return attempt_steps(found, site.seeds.all_refinements())


def _json(one: Registry) -> Mapping[str, object]:
    return {
        "registry": one.name,
        "active": {version.name: version.number for version in one.active},
        "epochs": [
            {
                "id": epoch.id,
                "epoch_num": epoch.number,
                "suite": epoch.suite,
                "mean_loss": epoch.loss,
                "runs": [
                    {"run_id": run.run, "task_name": run.task, "loss": run.loss}
                    for run in epoch.runs
                ],
                "changes": [
                    {
                        "artifact": change.name,
                        "from": change.old,
                        "to": change.new,
                        "rollback": change.rollback,
                    }
                    for change in epoch.changes
                ],
            }
            for epoch in one.epochs
        ],
    }
