"""`kept agent optimize SUITE`: the prompts of agent runs, made better by a suite of tasks."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from kept.ui.cli.command import Command
from kept.ui.cli.options import (
    gain_option,
    json_option,
    money_option,
    no_cache_option,
    quiet_option,
    set_option,
    workers_option,
)

if TYPE_CHECKING:
    from kept.core.proposal import ClosedStep
    from kept.recipes.recipes import Compiled
    from kept.store.reader import Run


@click.command(
    cls=Command,
    examples=(
        "kept agent optimize suite.yaml",
        "kept agent optimize suite.yaml --epochs 3 --set gate=rollback",
        "kept agent optimize suite.yaml --target exp_0123abcd:001",
    ),
)
@click.argument("suite", type=click.Path(path_type=Path))
@click.option(
    "--epochs",
    type=click.IntRange(min=1),
    metavar="N",
    help="Updates that are tried, one an epoch; by default what SUITE says.",
)
@click.option(
    "--target",
    metavar="EXP:TASK",
    help="The task of an experiment, whose own prompt artifacts are optimized.",
)
@set_option
@no_cache_option
@workers_option
@money_option
@json_option
@gain_option
@quiet_option
def optimize(  # a command has its options
    suite: Path,
    epochs: int | None,
    target: str | None,
    settings: tuple[str, ...],
    workers: int | None,
    max_usd: float | None,
    as_json: bool,
    fail_if_no_gain: bool,
    quiet: bool,
) -> int:
    """Improve the prompts of agent runs by the tasks of SUITE.

    Every epoch has the tasks run, shows what was found wrong to a model for each of the six prompt
    artifacts, and tries the update that promises most. It is kept only if runs of the tasks are
    better with it; from then on `kept agent run` uses it; after --target, only runs and refinements
    with a --target of that experiment do. `kept agent artifacts` looks at versions, and goes back
    to an earlier one.
    """
    from kept.orchestrator.refine.session import session_stamp
    from kept.recipes.registry import find_spec
    from kept.recipes.suite.compile import Optimization, compile_suite
    from kept.store.home import Home
    from kept.ui.cli.compiling import told_warnings
    from kept.ui.cli.sitting import How, start_run

    settings += (f"workers={workers}",) if workers else ()
    settings += (f"budget.max_usd={max_usd}",) if max_usd is not None else ()
    file = find_spec(suite)
    asked = Optimization(
        epochs=epochs,
        target=target or "",
        folder=str(Path.cwd()),
        stamp=f"suite_{_now(session_stamp)}",
    )
    plan = told_warnings(compile_suite(file, settings, asked=asked))
    how = How(json=as_json, quiet=quiet, fail_if_no_gain=fail_if_no_gain)
    return start_run(plan, Home.find(file.parent), how)


def _now(stamp: Any) -> str:  # noqa: ANN401 # from seconds to a text
    import time

    return "".join(one for one in str(stamp(time.time())) if one.isalnum())


def outline_suite(made: "Compiled") -> tuple[dict[str, Any], Iterator[tuple[str, str]]]:
    """What a run would do, for `kept check`: as a document, and in rows."""
    from kept.core.forecast import forecast

    plan = made.plan
    most = forecast(plan).rollouts
    assert most is not None, "epochs are limited"
    rows = [
        ("suite", f"{plan.facts['id']}"),
        ("tasks", _tasks(made)),
        ("epochs", f"{plan.facts['epochs']}, one update each"),
        ("gate", f"{plan.gate.name}, by `{plan.objective.metric}`"),
        ("at once", f"{plan.workers} runs"),
        ("at most", f"{most:,} runs"),
        ("artifacts", str(plan.facts["registry"])),
    ]
    told: dict[str, Any] = {name.replace(" ", "_"): value for name, value in rows}
    head = {"spec": plan.facts["spec"], "recipe": plan.recipe}
    return {**head, **told, "warnings": list(made.warnings)}, iter(rows)


def _tasks(made: "Compiled") -> str:
    from kept.core.case import SPLITS

    cases = made.plan.cases
    if made.plan.facts["shared"]:
        return f"{len(cases.holdout)}, all of them shown and deciding"
    return ", ".join(f"{len(cases.of(name))} {name}" for name in SPLITS)


def suite_rows(run: "Run") -> list[tuple[str, str]]:
    """What a run did to the prompt artifacts, for its answer."""
    told = suite_told(run)
    rows: list[tuple[str, str]] = []
    for one in told["updates"]:
        number = "" if one["version"] is None else f" version {one['version']}"
        words = f"{one['artifact']}{number}: {one['outcome']}"
        rows.append(("updates" if not rows else "", words))
    active = [f"{name} {number}" for name, number in told["active"].items() if number]
    rows.append(("active", ", ".join(active) or "Kept's own texts"))
    rows.append(("artifacts", told["registry"]))
    return rows


def suite_told(run: "Run") -> dict[str, Any]:
    """The same for programs."""
    from kept.orchestrator.prompt_registry import PromptRegistry
    from kept.orchestrator.texts import own_artifacts
    from kept.ui.cli.names import path_from_here

    registry = PromptRegistry(Path(run.state.fact("registry")), own_artifacts())
    by_epoch = {one.epoch: one.number for name in registry.names for one in registry.versions(name)}
    used = max((one.step for one in run.state.closed if one.verdict.best), default=-1)
    updates = [
        {
            "epoch": step.turn.settings.get("epoch"),
            "artifact": step.proposal.about.get("artifact"),
            "version": by_epoch.get(f"{run.id}/{step.step}"),
            "outcome": _outcome(step, used),
            "mean_loss": step.loss,
            "reason": step.verdict.reason,
        }
        for step in run.state.closed
        if step.proposal is not None
    ]
    active = {name: one.number for name, one in registry.active().items()}
    return {"registry": path_from_here(registry.path), "active": active, "updates": updates}


def _outcome(step: "ClosedStep", used: int) -> str:
    """What became of an update; `used` is the last step that runs go by."""
    from kept.core.verdict import UNDECIDED, UNMEASURED

    if step.verdict.code in UNDECIDED:
        return "not decided"
    if step.verdict.code in UNMEASURED:
        return "refused before it was run"
    if step.verdict.outcome != "keep":
        return "rolled back"
    return "kept" if step.step <= used else "kept, not proven for other tasks, and not used"


def resumed_suite(run: "Run", spec: Path, settings: tuple[str, ...]) -> "Compiled":
    """What a run was, compiled again: with the texts that it began with."""
    from kept.core.plan import SUITE
    from kept.recipes.suite.compile import Optimization, compile_suite

    started = run.state.started
    assert started is not None, "a run that can be read has started"
    asked = Optimization.of(cast("dict[str, Any]", started.facts[SUITE]))
    if any(setting.startswith("epochs=") for setting in settings):
        asked = replace(asked, epochs=None)  # what was set last is what is meant
    texts = run.candidate(run.state.seed).texts
    return compile_suite(spec, settings, run.state.fact("gate"), asked=asked, texts=texts)
