"""`kept test run AGENT` (short: `kept test AGENT`), and `kept test optimize AGENT`.

`optimize` tunes numbers and texts of an agent in turn. Its `--dry-run` shows steps and maximum
cost.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kept.core.case import SPLITS
from kept.core.text import dollars_at_most
from kept.errors import KeptError
from kept.ui.cli import _output
from kept.ui.cli._command import (
    Command,
    Commands,
    CutShortError,
    exit_code_of,
    no_cache_option,
    set_option,
    workers_option,
)
from kept.ui.cli.check import about
from kept.ui.cli.eval import EvalOptions, sweep, sweep_options
from kept.ui.cli.view import view

if TYPE_CHECKING:
    from kept.core.plan import Plan
    from kept.recipes.agent_config.cost import Expected
    from kept.recipes.agent_config.request import Tuning, TuningFacts
    from kept.recipes.agent_config.search_space import Axes
    from kept.recipes.agent_config.spec.read import ReadAgent


FATAL, STOPPED = 1, 2
"""Exit codes of this command's source; a finished run is 0, with or without a gain."""

_count = click.IntRange(min=1)
_above = click.FloatRange(min=0, min_open=True)


class TuningCommand(Command):
    """Command with the exit codes of its source."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the options; an error in them ends with the code for fatal errors."""
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            exit_code_of(error)
            raise click.exceptions.Exit(FATAL) from None

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 # click's own signature
        """Run the command; an error that prevents a run ends with the code for fatal errors."""
        try:
            return super().invoke(ctx)
        except (KeptError, CutShortError) as error:
            if ctx.params.get("progress") == "json":
                from kept.ui.cli._tune_run import tell_error

                tell_error(str(error))
            exit_code_of(error)
            return FATAL


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneOptions:
    """Options of a tuning run."""

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
    from kept.recipes.agent_config.request import Tuning

    names = {one.name for one in fields(Tuning)}
    tuning = Tuning(
        **{name: said.pop(name) for name in list(said) if name in names},
        output=str(output_dir.absolute()) if output_dir else None,
        # as in the design that this command follows: warn, and print the limit of rollouts
        allow_unpriced=True,
    )
    return _tune(agent, tuning, TuneOptions(**said))


def _tune(agent: Path, tuning: "Tuning", how: TuneOptions) -> int:
    if how.suggest_axes:
        return _suggest(agent, how)
    if how.report_only:
        from kept.ui.cli._tune_run import open_tuning, write_pages

        run = open_tuning(how.resume or "last")
        click.echo(str(write_pages(run)), err=how.progress == "json")
        run.close()
        return 0
    if how.resume:
        return _resume(tuning, how)
    from kept.recipes.agent_config.tune import compile_coordinate
    from kept.recipes.registry import find_spec
    from kept.store.home import Home
    from kept.ui.cli._run import run_session, told_warnings
    from kept.ui.cli._tune_run import check_place, tuning_session

    file = find_spec(agent)
    made = compile_coordinate(
        file, how.settings, tuning=tuning, workers=how.workers, writes=not how.dry_run
    )
    plan = told_warnings(made)
    if how.dry_run:
        from kept.recipes.agent_config.tune import read_tuning

        read = read_tuning(file, how.settings, tuning)
        told = outline_text(plan, read.read, read.axes)
        # stdout is reserved for events under --progress json
        click.echo(told, err=how.progress == "json")
        return 0
    if how.print_baseline:
        from kept.core.schedules.round_robin import MEASURE, Turns

        plan = replace(
            plan,
            schedule=Turns(MEASURE, 1, "baseline"),
            facts=replace(tuning_facts(plan), baseline_only=True),
        )
    check_place(plan)
    plan, session = tuning_session(plan, how)
    return run_session(plan, Home.find(file.parent), session)


def _suggest(agent: Path, how: TuneOptions) -> int:
    from kept.recipes.agent_config.spec.optimizer import missing_cases, starter_block, where_it_goes
    from kept.recipes.agent_config.spec.read import read_agent
    from kept.recipes.registry import find_spec

    read = read_agent(find_spec(agent), how.settings)
    click.echo(starter_block(read))
    _output.note(where_it_goes(read))
    if lacking := missing_cases(read):
        _output.warn(lacking)
    _output.note(
        "texts are changed for train cases that fail: `kept test run` shows whether any does"
    )
    return 0


def _resume(asked: "Tuning", how: TuneOptions) -> int:
    from kept.recipes.agent_config.request import Tuning
    from kept.recipes.base import Context
    from kept.recipes.registry import compile_resumed, request_of
    from kept.ui.cli._run import run_session, told_warnings
    from kept.ui.cli._tune_run import open_tuning, tuning_session
    from kept.ui.cli.resume import check_again

    run = open_tuning(how.resume or "last")
    check_again(run, how.settings)
    before = request_of(run, Tuning)
    assert before is not None, "a run that tunes an agent"
    context = Context(overrides=how.settings, workers=how.workers)
    made = compile_resumed(run, context, before.moved(run.moved).renewed(asked))
    run.close()
    plan, session = tuning_session(told_warnings(made), how)
    return run_session(plan, run.folder, session)


class RunByDefault(Commands):
    """Group whose default command is `run`, if the first word is an agent's file or folder."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; insert `run` before an agent's file or folder."""
        path = Path(args[0])
        if args[0] not in self.commands and (path.suffix in (".yaml", ".yml") or path.is_dir()):
            args = ["run", *args]
        return super().resolve_command(ctx, args)


@click.group(cls=RunByDefault, examples=("kept test run agent.yaml", "kept test agent.yaml -n 5"))
def test() -> None:
    """Test the agent of an agent.yaml on its cases."""


@test.command(
    cls=Command,
    examples=("kept test run agent.yaml", "kept test run agent.yaml --format junit -o report.xml"),
)
@click.argument("agent", type=click.Path(path_type=Path), default="agent.yaml")
@sweep_options
@click.option(
    "--parallel-test-cases",
    type=click.IntRange(min=1),
    metavar="N",
    help="The same as --workers.",
)
def run(agent: Path, parallel_test_cases: int | None, **options: Any) -> int:  # noqa: ANN401 # those of `sweep_options`
    """Run the test cases of AGENT, and say which of them pass.

    The same as `kept eval AGENT`. Exits with 0 where all cases pass, 1 where some fail, 2 where
    AGENT is wrong, 3 where some could not be run and 4 where some could not be measured.
    """
    options["workers"] = options["workers"] or parallel_test_cases
    return sweep(agent, EvalOptions(**options))


test.add_command(tune)
test.add_command(
    Command(
        "view",
        callback=view.callback,
        params=view.params,
        help=view.help,
        examples=("kept test view", "kept test view last --no-browser"),
    )
)


def tuning_facts(plan: "Plan") -> "TuningFacts":
    """Facts of a plan that tunes an agent."""
    from kept.recipes.agent_config.request import TuningFacts

    assert isinstance(plan.facts, TuningFacts), "a plan that tunes an agent"
    return plan.facts


def outline_text(plan: "Plan", read: "ReadAgent", axes: "Axes") -> str:
    """Outline of a run for `--dry-run`."""
    from kept.recipes.agent_config.cost import coordinate_of, expected
    from kept.store.jsonl import decoded

    told = tuning_facts(plan).optimizer
    schedule = coordinate_of(plan)
    splits = ((name, len(plan.cases.of(name))) for name in SPLITS)
    rows = [
        ("agent", plan.spec.id),
        ("loss", ", ".join(f"{w:g} × {name}" for name, w in told["loss_weights"].items())),
        ("cases", ", ".join(f"{size} {name}" for name, size in splits)),
        ("gate", f"{plan.gate.name}: {plan.gate_why}"),
    ]
    for axis in told["axes"].get("numeric", ()):
        values = axis.get("range") or axis.get("choices")
        rows.append(("axis", f"{axis['path']} {decoded(values, list[object], 'axes')}"))
    for axis in told["axes"].get("textual", ()):
        rows.append(("axis", f"{axis['path']}, {axis['max_chars']} characters at most"))
    for phase in schedule.phases:
        limits = f"{phase.max_trials} trials at most, {phase.patience} without a keep end it"
        limits += f" after the first {phase.least}" if phase.least > phase.patience else ""
        rows.append((f"{phase.name} phase", limits))
    rows.append(("cycles", f"{schedule.max_cycles} at most"))
    limits = {k: v for k, v in told["budget"]["global"].items() if v is not None}
    unkept = plan.budget.max_usd is None
    shown = (
        f"{k} {v:g}" + (" (not enforced)" if k == "max_usd" and unkept else "")
        for k, v in limits.items()
    )
    rows.append(("budget", ", ".join(shown)))
    rows += _cost(expected(plan, schedule, read, axes), read)
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)


def _cost(cost: "Expected", read: "ReadAgent") -> Iterator[tuple[str, str]]:
    """Likely and highest cost, with assumptions."""
    from kept.models.prices import REPLY
    from kept.models.roles import is_free

    config = read.agent.model_config(read.place.folder)

    def shown(rollouts: int) -> str:
        usd = None if cost.usd_a_rollout is None else cost.usd(rollouts)
        return about(rollouts, cost.at_most) + ("" if not usd else f" (${usd:,.2f})")

    useless, kept = shown(cost.useless), shown(cost.kept)
    yield "likely", f"{useless} if nothing is better, {kept} if something is kept and proven"
    assumed = ["what is no better is dropped as early as the gate can tell"]
    if cost.usd_a_rollout:
        assumed.append(f"a call a turn, with a reply of {REPLY} tokens at most")
        assumed.append("the dearest model that an axis allows")
        assumed.append("tools, judges, critic and applier are not counted")
    elif not is_free(config):
        assumed.append(f"the price of `{config.name}` is not known")
    yield "", f"taken for granted: {'; '.join(assumed)}"
    most = "rollouts without limit" if cost.at_most is None else f"{cost.at_most:,} rollouts"
    if cost.most_usd is None:
        yield "at most", f"{most}, money without limit"
        if cost.usd_a_rollout is not None or is_free(config):
            yield "", "`budget.global.max_usd` limits it"
        elif cost.at_most is None:
            yield "", "`budget.global.max_rollouts` limits it: without a price `max_usd` cannot"
    else:
        yield "at most", f"{most}, {dollars_at_most(cost.most_usd)}"
