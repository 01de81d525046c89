"""`kept test optimize AGENT`: the numbers and texts of an agent, tuned in turn."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kept.ui.cli.command import Command
from kept.ui.cli.options import no_cache_option, set_option, workers_option

if TYPE_CHECKING:
    from kept.core.plan import Plan
    from kept.recipes.agent_config.tuning import Tuning

FATAL, STOPPED = 1, 2
"""As the source of this command has them; finished is 0, whether or not anything was gained."""

_count = click.IntRange(min=1)
_above = click.FloatRange(min=0, min_open=True)


class TuningCommand(Command):
    """Ends with the codes of its source."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the options; what is wrong with them is fatal, too."""
        from kept.ui.cli.fail import exit_code_of

        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            exit_code_of(error)
            raise click.exceptions.Exit(FATAL) from None

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 # click's own signature
        """Run it; what could not run is fatal."""
        from kept.errors import KeptError
        from kept.ui.cli.fail import CutShortError, exit_code_of

        try:
            return super().invoke(ctx)
        except (KeptError, CutShortError) as error:
            if ctx.params.get("progress") == "json":
                from kept.ui.cli.tuning_events import tell_error

                tell_error(str(error))
            exit_code_of(error)
            return FATAL


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command line said of the way it runs."""

    resume: str | None
    report_only: bool
    keep_best_only: bool
    dry_run: bool
    print_baseline: bool
    suggest_axes: bool
    quiet: bool
    verbose: bool
    progress: str
    settings: tuple[str, ...]
    workers: int | None
    as_json: bool = False


@click.command(
    "optimize",
    cls=TuningCommand,
    examples=(
        "kept test optimize agent.yaml --dry-run",
        "kept test optimize agent.yaml --max-cycles 2 --max-minutes 30",
        "kept test optimize agent.yaml --resume last",
    ),
)
@click.argument("agent", type=click.Path(path_type=Path), default="agent.yaml")
@click.option("--max-cycles", type=_count, metavar="N", help="Cycles of all phases, at most.")
@click.option("--max-minutes", type=_above, metavar="N", help="Wall time of the whole run.")
@click.option("--max-usd", type=_above, metavar="N", help="Money for the whole run.")
@click.option("--numeric-max-trials", type=_count, metavar="N", help="Of each numeric phase.")
@click.option("--numeric-patience", type=_count, metavar="N", help="Trials without a keep.")
@click.option("--textual-max-trials", type=_count, metavar="N", help="Of each textual phase.")
@click.option("--textual-patience", type=_count, metavar="N", help="Trials without a keep.")
@click.option("--repeats", type=_count, metavar="N", help="Sweeps a trial, under `sigma`.")
@click.option(
    "--accept-sigma",
    type=click.FloatRange(min=0),
    metavar="N",
    help="Decide by `sigma`, with a bar of so many pooled standard deviations.",
)
@click.option("--seed", type=int, metavar="N", help="For all that is drawn.")
@click.option("--resume", metavar="RUN", help="Go on with a run: an id, part of one, or `last`.")
@click.option("--report-only", is_flag=True, help="Write report.md of a run again; run nothing.")
@click.option("--keep-best-only", is_flag=True, help="At the end, drop candidates but the best.")
@click.option("--dry-run", is_flag=True, help="Check everything, say what would be done, and stop.")
@click.option("--print-baseline", is_flag=True, help="Measure the agent as it is, and stop.")
@click.option(
    "--suggest-axes", is_flag=True, help="Print a block with axes that this agent could have."
)
@click.option(
    "-o",
    "--output-dir",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Instead of results/optimizer/RUN.",
)
@click.option("-q", "--quiet", is_flag=True, help="Show nothing while it runs.")
@click.option("-v", "--verbose", is_flag=True, help="Show what critic and applier say.")
@click.option(
    "--progress",
    type=click.Choice(("plain", "json")),
    default="plain",
    help="`json` writes one event a line to stdout, and nothing else.",
)
@set_option
@no_cache_option
@workers_option
def tune(agent: Path, output_dir: Path | None, **said: Any) -> int:  # noqa: ANN401 # the options above
    """Tune the numbers and texts that AGENT names, and keep what is better.

    Phases of numbers and of words take turns; what is kept is what the next trial begins from.
    AGENT is not touched: the best lies in results/optimizer/RUN. Exits with 0 where it finished,
    whether or not anything was gained, 1 where it could not run and 2 where it was interrupted.
    """
    from dataclasses import fields

    from kept.recipes.agent_config.tuning import Tuning

    names = {one.name for one in fields(Tuning)}
    tuning = Tuning(
        **{name: said.pop(name) for name in list(said) if name in names},
        output=str(output_dir.absolute()) if output_dir else None,
        # as in the design that this command follows: warn, and print the bound on rollouts
        allow_unpriced=True,
    )
    return _tune(agent, tuning, Options(**said))


def _tune(agent: Path, tuning: "Tuning", how: Options) -> int:
    if how.suggest_axes:
        return _suggest(agent, how)
    if how.report_only:
        return _report_only(how)
    if how.resume:
        return _resume(tuning, how)
    from kept.recipes.agent_config.coordinate import compile_coordinate
    from kept.recipes.registry import find_spec
    from kept.run import start
    from kept.store.home import Home
    from kept.ui.cli.compiling import told_warnings
    from kept.ui.cli.tuning_sitting import check_place, sit

    file = find_spec(agent)
    made = compile_coordinate(
        file, how.settings, tuning=tuning, workers=how.workers, writes=not how.dry_run
    )
    plan = told_warnings(made)
    if how.dry_run:
        from kept.recipes.agent_config.coordinate import read_tuning
        from kept.ui.cli.tuning_outline import outline_text

        read = read_tuning(file, how.settings, tuning)
        told = outline_text(plan, read.read, read.axes)
        # stdout is for events alone where they are asked for
        click.echo(told, err=how.progress == "json")
        return 0
    if how.print_baseline:
        plan = _baseline_only(plan)
    check_place(plan)
    home = Home.find(file.parent)
    return sit(plan, lambda p, watch: start(p, home, watch), how)


def _suggest(agent: Path, how: Options) -> int:
    from kept.recipes.agent_config.spec.read import read_agent
    from kept.recipes.agent_config.spec.starter import missing_cases, starter_block, where_it_goes
    from kept.recipes.registry import find_spec
    from kept.ui.cli import _output

    read = read_agent(find_spec(agent), how.settings)
    click.echo(starter_block(read))
    _output.note(where_it_goes(read))
    if lacking := missing_cases(read):
        _output.warn(lacking)
    _output.note(
        "texts are changed for train cases that fail: `kept test run` shows whether any does"
    )
    return 0


def _baseline_only(plan: "Plan") -> "Plan":
    from kept.core.schedules.schedule import MEASURE, Turns
    from kept.ui.report.exits import BASELINE_ONLY

    facts = {**plan.facts, BASELINE_ONLY: True}
    return replace(plan, schedule=Turns(MEASURE, 1, "baseline"), facts=facts)


def _resume(asked: "Tuning", how: Options) -> int:
    from kept.core.plan import COORDINATE
    from kept.recipes.agent_config.coordinate import compile_coordinate
    from kept.recipes.agent_config.tuning import Tuning
    from kept.run import resume
    from kept.ui.cli.compiling import told_warnings
    from kept.ui.cli.resume import check_again
    from kept.ui.cli.tuning_sitting import open_tuning, sit, spec_of

    run = open_tuning(how.resume or "last")
    check_again(run, how.settings)
    spec, before = spec_of(run)
    tuning = Tuning.of(run.fact(COORDINATE), run.moved).renewed(asked)
    began = run.state.fact("gate")
    run.close()
    settings = (*before, *how.settings)
    made = compile_coordinate(spec, settings, began, tuning=tuning, workers=how.workers)
    return sit(told_warnings(made), lambda p, watch: resume(p, run.folder, watch), how)


def _report_only(how: Options) -> int:
    from kept.ui.cli.tuning_sitting import open_tuning, write_pages

    run = open_tuning(how.resume or "last")
    click.echo(str(write_pages(run)), err=how.progress == "json")
    run.close()
    return 0
