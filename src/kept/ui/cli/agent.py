"""`kept agent`: run a task, optimize prompts on a suite, manage prompt versions.

`run` uses a manager, workers and a critic on one task, given as text or as one of an experiment.
`optimize SUITE` improves the prompts of agent runs. `artifacts` shows prompt versions and
activates one.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from kept.errors import SetupError, SpecError
from kept.ui.cli import _output
from kept.ui.cli._command import (
    Command,
    Commands,
    gain_option,
    json_option,
    money_option,
    no_cache_option,
    path_from_here,
    quiet_option,
    set_option,
    workers_option,
)

if TYPE_CHECKING:
    from kept.core.proposal import ClosedStep
    from kept.orchestrator.prompt_registry import PromptRegistry, Version
    from kept.recipes.base import Compiled
    from kept.store.reader import Run


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
    before = _registry(experiment).activate(name, version)
    if as_json:
        _output.document({"artifact": name, "version": version, "before": before.number})
        return
    runs = "runs" if experiment is None else f"runs with a --target of {experiment}"
    _output.answer(f"{runs} use {name} {version}, and used {before.number} before")


def _registry(experiment: str | None) -> "PromptRegistry":
    from kept.orchestrator.experiments import EXPERIMENTS, read_experiment
    from kept.recipes.agent_run.make_toolkit import experiment_registry, registry_of
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
    import time

    from kept.orchestrator.refine.session import session_stamp
    from kept.recipes.registry import find_spec
    from kept.recipes.suite.compile import compile_suite
    from kept.recipes.suite.request import Optimization
    from kept.store.home import Home
    from kept.ui.cli._run import How, run_session, session_of, told_warnings

    settings += (f"workers={workers}",) if workers else ()
    settings += (f"budget.max_usd={max_usd}",) if max_usd is not None else ()
    file = find_spec(suite)
    now = "".join(one for one in str(session_stamp(time.time())) if one.isalnum())
    asked = Optimization(
        epochs=epochs,
        target=target or "",
        folder=str(Path.cwd()),
        stamp=f"suite_{now}",
    )
    plan = told_warnings(compile_suite(file, settings, asked=asked))
    how = How(json=as_json, quiet=quiet, fail_if_no_gain=fail_if_no_gain)
    return run_session(plan, Home.find(file.parent), session_of(plan, how))


def outline_suite(made: "Compiled") -> tuple[dict[str, Any], Iterator[tuple[str, str]]]:
    """Outline of a run for `kept check`: as a document, and in rows."""
    from kept.core.case import SPLITS
    from kept.core.forecast import forecast
    from kept.recipes.suite.request import SuiteFacts

    plan = made.plan
    most = forecast(plan).rollouts
    assert most is not None, "epochs are limited"
    tasks = ", ".join(f"{len(plan.cases.of(name))} {name}" for name in SPLITS)
    facts = plan.facts
    assert isinstance(facts, SuiteFacts), "a run that optimizes prompts"
    if facts.shared:
        tasks = f"{len(plan.cases.holdout)}, all of them shown and deciding"
    rows = [
        ("suite", plan.spec.id),
        ("tasks", tasks),
        ("epochs", f"{facts.epochs}, one update each"),
        ("gate", f"{plan.gate.name}, by `{plan.objective.metric}`"),
        ("at once", f"{plan.workers} runs"),
        ("at most", f"{most:,} runs"),
        ("artifacts", facts.registry),
    ]
    told: dict[str, Any] = {name.replace(" ", "_"): value for name, value in rows}
    from kept.ui.report.format import recipe_word

    head = {"spec": plan.spec.path, "recipe": recipe_word(plan.recipe)}
    return {**head, **told, "warnings": list(made.warnings)}, iter(rows)


def suite_rows(run: "Run") -> list[tuple[str, str]]:
    """Rows of the answer: updates of prompt artifacts and active versions."""
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
    """Updates of prompt artifacts and active versions as a document."""
    from kept.orchestrator.prompt_registry import PromptRegistry
    from kept.orchestrator.toolkit import own_artifacts
    from kept.recipes.registry import facts_of
    from kept.recipes.suite.request import SuiteFacts

    facts = facts_of(run, SuiteFacts)
    assert facts is not None, "a run that optimizes prompts"
    registry = PromptRegistry(Path(facts.registry), own_artifacts())
    by_epoch = {one.epoch: one.number for name in registry.names for one in registry.versions(name)}
    used = max((one.step for one in run.state.history if one.verdict.best), default=-1)
    updates = [
        {
            "epoch": step.turn.settings.get("epoch"),
            "artifact": step.proposal.about.get("artifact"),
            "version": by_epoch.get(f"{run.id}/{step.step}"),
            "outcome": _outcome(step, used),
            "mean_loss": step.loss,
            "reason": step.verdict.reason,
        }
        for step in run.state.history
        if step.proposal is not None
    ]
    active = {name: one.number for name, one in registry.active().items()}
    return {"registry": path_from_here(registry.path), "active": active, "updates": updates}


def _outcome(step: "ClosedStep", used: int) -> str:
    """Result of an update; `used` is the last step whose texts runs use."""
    from kept.core.verdict import UNDECIDED, UNMEASURED

    if step.verdict.code in UNDECIDED:
        return "not decided"
    if step.verdict.code in UNMEASURED:
        return "refused before it was run"
    if step.verdict.outcome != "keep":
        return "rolled back"
    return "kept" if step.step <= used else "kept, not proven for other tasks, and not used"


@click.group(
    cls=Commands, examples=('kept agent run "Write a report on data.csv" --input data.csv',)
)
def agent() -> None:
    """Have a task done by a manager and its workers."""


agent.add_command(optimize)
agent.add_command(artifacts)


@agent.command(
    cls=Command,
    examples=(
        'kept agent run "Write a report on data.csv" --input data.csv',
        'kept agent run "Mend the tests" --input src --output mended --model openai/gpt-5-mini',
        'kept agent run "Draw up a budget" --config run.yaml --max-loops 10 --json',
    ),
)
@click.argument("task", metavar="[TASK]", required=False)
@click.option("--target", metavar="EXP:TASK", help="Do a task of an experiment instead.")
@click.option(
    "-i",
    "--input",
    "inputs",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="A file or folder that the task comes with; copied once. Repeatable.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Where to put what was made, besides the folder of the run; new or empty.",
)
@click.option("--model", metavar="MODEL", help="Of the manager, as in openai/gpt-5-mini.")
@click.option("--worker-model", metavar="MODEL", help="Of the workers; by default the manager's.")
@click.option(
    "--worker-agent",
    type=click.Choice(("codex_exec", "claude_code_exec", "opencode_exec")),
    help="An agent CLI that does the work, with the worker's model.",
)
@click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="A YAML file with `models`, `budget`, `prompts` and the like.",
)
@click.option("--max-loops", type=click.IntRange(min=1), metavar="N", help="Turns of the manager.")
@click.option("--max-tokens", type=click.IntRange(min=1), metavar="N", help="Of all models.")
@click.option(
    "--max-minutes", type=click.FloatRange(min=0, min_open=True), metavar="N", help="Wall time."
)
@money_option
@set_option
@no_cache_option
@click.option("-v", "--verbose", is_flag=True, help="Tell the whole story again at the end.")
@json_option
@quiet_option
def run(  # a command has its options
    task: str | None,
    target: str | None,
    inputs: tuple[Path, ...],
    output: Path | None,
    config: Path | None,
    settings: tuple[str, ...],
    verbose: bool,
    as_json: bool,
    quiet: bool,
    **given: str | float | None,
) -> int:
    """Have TASK done, and check what was made before it counts as done.

    A manager plans and sends workers, who work with tools in a sandbox; critics judge what they
    bring back, and what is to be delivered passes a chain of checks. The result is a run: `kept
    show` tells its story, `kept resume` goes on with one that was cut off. With --target it is one
    of a task of an experiment, and its best if it is better. Exits with 0 where the task is
    complete, 1 where it is partial or failed, 2 where it could not begin, 3 after an error and 130
    when interrupted.
    """
    from kept.recipes.agent_run.request import Asked
    from kept.ui.cli._agent_run import HowAgent, start_agent

    what = wanted(task, target)
    options = {name: given[name] for name in _PLACES if given[name] is not None}
    own = {name: f"{_PLACES[name]}={value}" for name, value in options.items()}
    asked = Asked(
        task=what.task,
        brief=what.brief,
        tags=what.tags,
        folder=str(Path.cwd()),
        inputs=(*what.inputs, *(str(path) for path in inputs)),
        output=str(output) if output else None,
        config=str(config) if config else None,
        settings=(*own.values(), *settings),
    )
    try:
        return start_agent(asked, HowAgent(json=as_json, quiet=quiet, verbose=verbose))
    except SpecError as error:
        flag = {name: f"--{name.replace('_', '-')}" for name in own}
        typed = {f"--set {set_}": (flag[name], str(options[name])) for name, set_ in own.items()}
        raise error.by_flags(typed) from error


_PLACES = {
    "model": "models.manager",
    "worker_model": "models.worker",
    "worker_agent": "worker_agent",
    "max_loops": "budget.max_loops",
    "max_tokens": "budget.max_tokens",
    "max_minutes": "budget.max_minutes",
    "max_usd": "budget.max_usd",
}
"""Path of the setting behind each option."""


class Wanted(NamedTuple):
    """Task of an agent run with its inputs."""

    task: str
    brief: str = ""
    inputs: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()


def wanted(words: str | None, target: str | None) -> Wanted:
    """Task from a text or from a target; a `SetupError` if both are given, or neither."""
    if (words is None) == (target is None):
        hint = '`kept agent run "TASK"`, or `kept agent run --target EXP:TASK`'
        raise SetupError("say what is to be done, once", hint=hint)
    if words is not None:
        return Wanted(words)
    from kept.recipes.agent_run.experiment_run import lay_inputs, tag_of, task_named

    here = Path.cwd()
    task = task_named(here, target or "")
    inputs, brief = lay_inputs(here, task.target)
    return Wanted(task.prompt, brief, inputs, (tag_of(task),))
