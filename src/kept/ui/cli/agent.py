"""`kept agent run`: a manager, workers and a critic on one task."""

from pathlib import Path

import click

from kept.ui.cli.agent_artifacts import artifacts
from kept.ui.cli.agent_optimize import optimize
from kept.ui.cli.command import Command, Commands
from kept.ui.cli.options import json_option, money_option, no_cache_option, quiet_option, set_option


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
    from kept.recipes.agent_run.compile import Asked
    from kept.ui.cli._agent_run import HowAgent, start_agent
    from kept.ui.cli.agent_target import wanted

    what = wanted(task, target)
    asked = Asked(
        task=what.task,
        brief=what.brief,
        tags=what.tags,
        folder=str(Path.cwd()),
        inputs=(*what.inputs, *(str(path) for path in inputs)),
        output=str(output) if output else None,
        config=str(config) if config else None,
        settings=(*_settings(given), *settings),
    )
    return start_agent(asked, HowAgent(json=as_json, quiet=quiet, verbose=verbose))


_PLACES = {
    "model": "models.manager",
    "worker_model": "models.worker",
    "worker_agent": "worker_agent",
    "max_loops": "budget.max_loops",
    "max_tokens": "budget.max_tokens",
    "max_minutes": "budget.max_minutes",
    "max_usd": "budget.max_usd",
}
"""Where a file would say what an option says."""


def _settings(given: dict[str, str | float | None]) -> tuple[str, ...]:
    rows = ((place, given[name]) for name, place in _PLACES.items())
    return tuple(f"{place}={value}" for place, value in rows if value is not None)
