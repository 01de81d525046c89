"""`kept compare A B [C ...]`, with its terminal output."""

import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kept.errors import SetupError
from kept.ui.cli import _output
from kept.ui.cli._command import (
    Command,
    gain_option,
    json_option,
    no_cache_option,
    quiet_option,
    set_option,
    workers_option,
)
from kept.ui.report.format import count, number

if TYPE_CHECKING:
    from kept.results.compare import Comparison, Planned
    from kept.results.summary import Summary


@click.command(
    cls=Command,
    examples=(
        "kept compare prompt.md alternatives/4-best.md --cases cases.jsonl",
        "kept compare prompt.md --cases cases.jsonl --plan",
    ),
)
@click.argument("versions", nargs=-1, required=True, metavar="A B [C ...]")
@click.option("--cases", metavar="FILE", help="The cases, all of which decide.")
@click.option(
    "--task",
    type=click.Path(path_type=Path),
    default="task.yaml",
    show_default=True,
    help="Where runner, scorer, objective and artifacts are from.",
)
@click.option("--plan", is_flag=True, help="Run A twice, and say what a comparison could show.")
@click.option(
    "--least",
    type=click.FloatRange(min=0, min_open=True),
    metavar="X",
    help="The least gain worth knowing of; by default 5 % of the metric's bounds, or of A's score.",
)
@click.option(
    "--passes",
    type=click.IntRange(min=1),
    metavar="N",
    help="Passes over the cases at most, 16 by default; 1 where answers do not vary.",
)
@set_option
@no_cache_option
@workers_option
@json_option
@gain_option
@quiet_option
def compare(
    versions: tuple[str, ...],
    cases: str | None,
    task: Path,
    plan: bool,
    least: float | None,
    passes: int | None,
    settings: tuple[str, ...],
    workers: int | None,
    as_json: bool,
    fail_if_no_gain: bool,
    quiet: bool,
) -> int:
    """Say whether B is better than A for cases like these.

    The answer: better, not better, worse, or that these cases cannot tell, and how many more it
    would take. A, which is in use, and its challengers are files, folders or revisions of git
    (HEAD~1, v1.2:prompts/). They run side by side for as long as that helps to tell.
    """
    from kept.core.text import dollars_at_most
    from kept.recipes.compare.compile import compile_comparison, most_rollouts
    from kept.recipes.compare.request import Comparing
    from kept.recipes.registry import find_spec
    from kept.store.home import Home
    from kept.ui.cli._run import How, run_session, session_of, told_warnings

    if len(versions) == 1 and not plan:
        raise click.UsageError("there is nothing to compare with A: give B")
    settings += (f"workers={workers}",) if workers else ()
    how = How(json=as_json, quiet=quiet, fail_if_no_gain=fail_if_no_gain)
    spec = find_spec(_beside(task, versions[0]))
    asked = Comparing(
        words=versions,
        here=str(Path.cwd()),
        cases=cases,
        plan=plan,
        passes=passes,
        least=least,
    )
    made = told_warnings(compile_comparison(spec, asked, settings))
    if not quiet:
        most = most_rollouts(made)
        usd = most * (1 + made.retries) * made.worst_usd
        money = f", {dollars_at_most(usd)}" if usd else ""
        _output.note(f"{len(made.cases.holdout)} cases, at most {most:,} rollouts{money}")
    return run_session(made, Home.find(spec.parent), session_of(made, how))


def _beside(task: Path, first: str) -> Path:
    """The given task; if it is missing, the error's hint names a task beside A."""
    other = Path(first).parent / "task.yaml"
    if not task.exists() and other.is_file():
        hint = f"`--task {other}` takes the one beside {first}"
        raise SetupError(f"there is no {task} here", hint=hint)
    return task


WIDTH = 88


def compared_text(told: "Comparison", about: "Summary") -> str:
    """Answers in words, then the figures in a table."""
    from kept.ui.report.compare import sentences

    words = "\n".join(textwrap.fill(line, WIDTH) for line in sentences(told, about.spend))
    rows = _forecasts(told.planned, about) if told.planned else _rows(told, about)
    return "\n\n".join(part for part in (_output.visible(words), *rows) if part)


def _rows(told: "Comparison", about: "Summary") -> Iterator[str]:
    from kept.ui.report.compare import interval

    if not told.lines:
        return
    header = ("challenger", about.metric, told.seed, "difference", "cases", "rollouts", "answer")
    rows = [
        (
            line.label,
            "" if line.value is None else number(line.value),
            "" if line.seed_value is None else number(line.seed_value),
            interval(line),
            f"{line.numbers['cases']:.0f} × {line.numbers['passes']:.0f}" if line.numbers else "",
            str(line.rollouts) if line.rollouts else "",
            line.answer,
        )
        for line in told.lines
    ]
    right = header[1:6]
    yield _output.table(header, rows, right=right, whole=("answer",), middle=("challenger",))


def _forecasts(told: "Planned", about: "Summary") -> Iterator[str]:
    from kept.ui.report.compare import found_alike, short

    spend = about.spend
    each = spend.usd / spend.rollouts if spend.rollouts else 0.0
    header = ["passes", "rollouts", "same on every case", "at worst"]
    header += ["cost"] if each else []
    rows = [
        [
            str(row.passes),
            f"{row.rollouts:,}",
            found_alike(row, told),
            short(row.worst),
            *([f"${row.rollouts * each:,.2f}"] if each else []),
        ]
        for row in told.forecasts
    ]
    yield _output.table(header, rows, right=header)
    yield (
        f"{about.metric} {number(told.seed_value)}; answers to one case differ by "
        f"{short(told.noise)} (standard deviation), cases by {short(told.between)}; measured in "
        f"{count(spend.rollouts, 'rollout')}"
    )
