"""`kept agent artifacts`: versions of the prompts that agent runs are improved by."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kept.ui.cli.command import Command, Commands
from kept.ui.cli.options import json_option

if TYPE_CHECKING:
    from kept.orchestrator.prompt_registry import PromptRegistry, Version


@click.group(cls=Commands, examples=("kept agent artifacts list",))
def artifacts() -> None:
    """Look at versions of prompt artifacts, and choose the one that runs use.

    Version 0 is Kept's own text. The others are in `artifacts.db` of the `.kept` folder found from
    here upwards, or in the file that KEPT_ARTIFACTS names. An experiment that was optimized, or
    of which a version was chosen, has its own, which runs with --target use.
    """


def _experiment(function: "click.decorators.FC") -> "click.decorators.FC":
    return click.option("--experiment", metavar="EXP", help="Those of an experiment.")(function)


@artifacts.command("list", cls=Command, examples=("kept agent artifacts list",))
@_experiment
@json_option
def list_(experiment: str | None, as_json: bool) -> None:
    """List all versions, and which are used."""
    from kept.ui.cli import _output

    registry = _registry(experiment)
    if experiment is not None and not registry.path.exists():
        _output.note(f"{experiment} has no versions of its own yet: its runs use the project's")
    found = {name: registry.versions(name) for name in registry.names}
    if as_json:
        rows = [_row(one) for versions in found.values() for one in versions]
        _output.document({"registry": str(registry.path), "versions": rows})
        return
    lines = [
        (name, ", ".join(f"*{v.number}" if v.active else str(v.number) for v in versions))
        for name, versions in found.items()
    ]
    _output.answer(_output.table(("artifact", "versions, * is used"), lines))


@artifacts.command(cls=Command, examples=("kept agent artifacts show critique_rubric --version 2",))
@click.argument("name", metavar="ARTIFACT")
@click.option("--version", type=int, metavar="N", help="By default the one that is used.")
@_experiment
@json_option
def show(name: str, version: int | None, experiment: str | None, as_json: bool) -> None:
    """Print one version of an artifact."""
    from kept.ui.cli import _output

    one = _version(_registry(experiment), name, version)
    if as_json:
        _output.document({**_row(one), "content": one.content})
    else:
        _output.answer(one.content.rstrip("\n"))


@artifacts.command(cls=Command, examples=("kept agent artifacts diff critique_rubric 0 2",))
@click.argument("name", metavar="ARTIFACT")
@click.argument("before", type=int, required=False)
@click.argument("after", type=int, required=False)
@_experiment
@json_option
def diff(
    name: str, before: int | None, after: int | None, experiment: str | None, as_json: bool
) -> None:
    """Show what changed between two versions.

    By default from the one that the present one was made from.
    """
    from difflib import unified_diff

    from kept.ui.cli import _output

    registry = _registry(experiment)
    new = _version(registry, name, after)
    old = registry.version(name, before if before is not None else new.parent or 0)
    lines = unified_diff(
        old.content.splitlines(),
        new.content.splitlines(),
        f"{name} {old.number}",
        f"{name} {new.number}",
        lineterm="",
    )
    text = "\n".join(lines)
    if as_json:
        told = {"artifact": name, "before": old.number, "after": new.number}
        _output.document({**told, "diff": f"{text}\n" if text else ""})
    else:
        _output.answer(text or f"versions {old.number} and {new.number} are the same")


@artifacts.command(cls=Command, examples=("kept agent artifacts activate critique_rubric 0",))
@click.argument("name", metavar="ARTIFACT")
@click.argument("version", type=int)
@_experiment
@json_option
def activate(name: str, version: int, experiment: str | None, as_json: bool) -> None:
    """Have runs use a version from now on; 0 is Kept's own."""
    from kept.ui.cli import _output

    before = _registry(experiment).activate(name, version)
    if as_json:
        _output.document({"artifact": name, "version": version, "before": before.number})
        return
    runs = "runs" if experiment is None else f"runs with a --target of {experiment}"
    _output.answer(f"{runs} use {name} {version}, and used {before.number} before")


def _registry(experiment: str | None) -> "PromptRegistry":
    from kept.orchestrator.folders import EXPERIMENTS, read_experiment
    from kept.recipes.agent_run.agent_texts import experiment_registry, registry_of
    from kept.store.home import Home

    home = Home.find(Path.cwd())
    if experiment is None:
        return registry_of(home)
    folder = read_experiment(home.path / EXPERIMENTS / experiment).folder
    return experiment_registry(home, folder)


def _version(registry: "PromptRegistry", name: str, number: int | None) -> "Version":
    if number is not None:
        return registry.version(name, number)
    return next(one for one in registry.versions(name) if one.active)


def _row(one: "Version") -> dict[str, object]:
    return {
        "artifact": one.name,
        "version": one.number,
        "active": bool(one.active),
        "parent_version": one.parent,
        "created_at": one.created,
        "epoch": one.epoch or None,
        "characters": len(one.content),
    }
