"""`kept optimize SPEC`."""

from pathlib import Path

import click

from kept.core.plan import AGENT_CONFIG, SKILL, SUITE, TASK
from kept.ui.cli import _output
from kept.ui.cli._command import (
    NO_GAIN,
    Command,
    gain_option,
    json_option,
    money_option,
    no_cache_option,
    path_from_here,
    quiet_option,
    set_option,
    workers_option,
)


@click.command(
    cls=Command,
    examples=(
        "kept optimize task.yaml",
        "kept optimize task.yaml --set budget.max_iterations=5 --json",
    ),
)
@click.argument("spec", type=click.Path(path_type=Path))
@set_option
@no_cache_option
@workers_option
@money_option
@json_option
@gain_option
@quiet_option
def optimize(
    spec: Path,
    settings: tuple[str, ...],
    workers: int | None,
    max_usd: float | None,
    as_json: bool,
    fail_if_no_gain: bool,
    quiet: bool,
) -> int:
    """Improve what SPEC names, and keep what is better.

    Proposes changes, runs and scores each, and keeps a change only when the gate says that it is
    better. The files that SPEC names are not touched: the best ones are in the run's own folder.
    SPEC is a task.yaml, an agent.yaml, a skill config, a suite of agent tasks, or the folder of a
    finished agent run, which is refined.
    """
    from kept.recipes.registry import find_spec
    from kept.spec.source import shown
    from kept.store.home import Home
    from kept.ui.cli import _output
    from kept.ui.cli._run import How, compiled, run_session, session_of

    settings += (f"workers={workers}",) if workers else ()
    settings += () if max_usd is None else (f"budget.max_usd={max_usd}",)
    if spec.is_dir() and (code := _refined(spec, settings, as_json, quiet)) is not None:
        return 0 if code == NO_GAIN and not fail_if_no_gain else code
    how = How(json=as_json, quiet=quiet, fail_if_no_gain=fail_if_no_gain)
    plan = compiled(spec, settings)
    file = find_spec(spec)
    if (words := SPECS.get(plan.recipe)) and not quiet:
        _output.note(f"{shown(file)} is {words}")
    return run_session(plan, Home.find(file.parent), session_of(plan, how))


SPECS = {
    TASK: "a task",
    AGENT_CONFIG: "an agent config",
    SKILL: "a skill config",
    SUITE: "a suite of agent tasks",
}
"""Kind of a spec in words, by recipe."""


def _refined(folder: Path, settings: tuple[str, ...], as_json: bool, quiet: bool) -> int | None:
    """Exit code of a refinement; None if the folder holds no finished run."""
    from kept.orchestrator.run_folder.read import COMPLETION, JOURNAL
    from kept.recipes.agent_run.request import Asked
    from kept.run import asked_for

    ours = (folder / JOURNAL).exists()
    if not (asked_for(Asked)(folder) if ours else (folder / COMPLETION).exists()):
        return None
    from kept.ui.cli._refine_run import refine_folder

    if not quiet:
        _output.note(f"{path_from_here(folder)} is a finished run, to be refined")
    return refine_folder(folder, settings, as_json=as_json, quiet=quiet)
