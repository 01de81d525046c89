"""`kept runs`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kept.ui.cli import _output
from kept.ui.cli._command import Command, json_option, path_from_here

if TYPE_CHECKING:
    from kept.results.compare import Comparison
    from kept.store.run_index import RunRow


@click.command(cls=Command, examples=("kept runs", "kept runs -n 3 --json"))
@click.option(
    "-n",
    "limit",
    type=click.IntRange(min=1),
    default=20,
    metavar="N",
    help="How many, the newest first.",
    show_default=True,
)
@json_option
def runs(limit: int, as_json: bool) -> None:
    """List the runs of this project.

    They are in the `.kept` folder found from here upwards, or in the one KEPT_HOME names. The runs
    of a refinement's iterations are behind it, each with the run that it started from.
    """
    from dataclasses import asdict

    from kept.core.plan import COMPARE
    from kept.store.home import Home
    from kept.store.run_index import RunIndex
    from kept.ui.cli._open_run import runs_below

    home = Home.find(Path.cwd())
    # looking makes no folder: the index would
    rows = RunIndex(home).with_iterations() if home.folders() else []
    if as_json:
        document: list[dict[str, Any]] = []
        for row in rows[:limit]:
            folder = home.runs / row.id
            told = _comparison(folder) if row.recipe == COMPARE else None
            document.append(
                {k: v for k, v in asdict(row).items() if k not in ("size", "spark")}
                | {"comparison": told.document() if told is not None else None}
                | {"folder": row.folder or str(folder)}
            )
        _output.document(document)
    elif rows:
        header = ("run", "status", "kept", "result", "spec")
        cells = [_cells(row, home.runs / row.id) for row in rows[:limit]]
        # a run is found by its id, which is of no use in part
        _output.answer(_output.table(header, cells, whole=("run", "kept"), middle=("spec",)))
        if len(rows) > limit:
            _output.note(f"{len(rows) - limit} older runs are not shown: -n {len(rows)} shows all")
    else:
        below = runs_below()
        _output.note(f"there are no runs in {home.runs}" + (f"; {below}" if below else ""))


def _comparison(folder: Path) -> "Comparison | None":
    from kept.results.compare import comparison_of
    from kept.store.reader import Run

    run = Run(folder)
    told = comparison_of(run.state)
    run.close()
    return told


def _ending(folder: Path) -> tuple[str, str]:
    """How an agent run ended, and what its task was."""
    from kept.core.text import one_line
    from kept.orchestrator.loss import run_loss
    from kept.recipes.agent_run.journal_view import agent_run_of
    from kept.store.reader import Run

    with Run(folder) as run:
        record = agent_run_of(run)
    if record is None:
        return "", ""
    return f"{record.status}, loss {run_loss(record).total:.4f}", one_line(record.task, 60)


def _cells(row: "RunRow", folder: Path) -> tuple[str, ...]:
    from kept.core.plan import AGENT_RUN, COMPARE, EVAL
    from kept.ui.report.format import number

    if row.refinement:
        loss = f"loss {number(row.best_value)}"
        return (row.id, row.status, f"iteration {row.iteration}", loss, f"from {row.parent_run_id}")
    compared = row.recipe == COMPARE
    result = f"{row.metric} {number(row.seed_value)}" if row.steps else ""
    if row.keeps and row.best_value != row.seed_value:
        result += f" → {number(row.best_value)}"
    # one that was only planned has no answers
    if compared and (told := _comparison(folder)) is not None:
        from kept.ui.report.compare import answers

        result = answers(told) or result
    spec = path_from_here(row.spec) if row.spec else row.recipe or row.reason
    # what was compared is neither kept nor refused
    kept = "comparison" if compared else f"{row.keeps} of {row.tried}"
    if row.recipe == EVAL:
        from kept.ui.cli.eval import read_sweep
        from kept.ui.report.eval_report import totals

        sweep = read_sweep(folder, traces=False)
        kept, result = EVAL, totals(sweep) if sweep is not None else ""
    if row.recipe == AGENT_RUN:
        kept, (result, spec) = "agent", _ending(folder)
    return (row.id, row.status, kept, result, spec)
