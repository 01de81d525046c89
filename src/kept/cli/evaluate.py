"""`kept eval SPEC`, and the options that it shares with `kept test run`."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kept.cli.command import Command
from kept.cli.options import json_option, quiet_option, set_option, workers_option

if TYPE_CHECKING:
    from kept.report.test_report import Format

F = TypeVar("F", bound=Callable[..., Any])

FORMS = click.Choice(("json", "markdown", "junit"))


def sweep_options(function: F) -> F:
    """Which cases, how often, and what becomes of the report."""
    options = (
        click.option(
            "-n",
            "--limit",
            type=click.IntRange(min=1),
            metavar="N",
            help="Only the first N of the cases that are meant.",
        ),
        click.option(
            "--filter",
            "filter_",
            default="",
            metavar="TEXT",
            help="Only cases whose name has TEXT in it, or fits it, as in 'refund-*'.",
        ),
        click.option(
            "--repeats",
            type=click.IntRange(min=1),
            default=1,
            metavar="N",
            help="How often each case is run.",
        ),
        click.option(
            "--timeout",
            type=click.FloatRange(min=0, min_open=True),
            metavar="SECONDS",
            help="For one case of an agent; longer is the agent's failure.",
        ),
        click.option(
            "-f", "--force-ingest", is_flag=True, help="Read the sources of indexes again."
        ),
        click.option(
            "-o",
            "--output",
            "write",
            type=click.Path(path_type=Path, dir_okay=False),
            metavar="FILE",
            help="Write the report to FILE; .json, .md and .xml say which kind.",
        ),
        click.option("--format", "form", type=FORMS, help="Which kind of report."),
        click.option("-v", "--verbose", is_flag=True, help="List cases that pass as well."),
        set_option,
        workers_option,
        json_option,
        quiet_option,
    )
    for option in reversed(options):
        function = option(function)
    return function


@click.command(
    "eval",
    cls=Command,
    examples=(
        "kept eval agent.yaml",
        "kept eval agent.yaml --filter 'refund-*' --repeats 3 -v",
        "kept eval agent.yaml -o report.xml",
    ),
)
@click.argument("spec", type=click.Path(path_type=Path))
@sweep_options
def evaluate(spec: Path, **options: Any) -> int:  # noqa: ANN401 # those of `sweep_options`
    """Measure what SPEC names on all its cases, and change nothing.

    SPEC is an agent.yaml or a task.yaml. The result is a run: `kept show` has every case of it, and
    `kept diff RUN RUN` says what changed between two. Exits with 0 where all cases pass, 1 where
    some fail, 2 where SPEC is wrong, 3 where some could not be run and 4 where some could not be
    measured.
    """
    return sweep(spec, Options(**options))


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What `sweep_options` said."""

    limit: int | None
    filter_: str
    repeats: int
    timeout: float | None
    force_ingest: bool
    write: Path | None
    form: "Format | None"
    verbose: bool
    settings: tuple[str, ...]
    workers: int | None
    as_json: bool
    quiet: bool


def sweep(spec: Path, given: Options) -> int:
    """Measure, and tell what came of it."""
    from kept.cli.compiling import told_warnings
    from kept.cli.sitting import How, start_run
    from kept.recipes.sweeping import Wanted
    from kept.registry import compile_sweep, find_spec
    from kept.store.home import Home

    wanted = Wanted(
        repeats=given.repeats, limit=given.limit, filter=given.filter_, timeout=given.timeout
    )
    made = compile_sweep(
        spec, wanted, given.settings, workers=given.workers, force=given.force_ingest
    )
    how = How(
        json=given.as_json,
        quiet=given.quiet,
        verbose=given.verbose,
        write=given.write,
        form=given.form,
    )
    return start_run(told_warnings(made), Home.find(find_spec(spec).parent), how)
