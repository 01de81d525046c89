"""`kept runs`."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from kept.core.plan import AGENT_RUN, COMPARE, EVALUATE
from kept.ui.cli import _output
from kept.ui.cli._command import Command, json_option, path_from_here

if TYPE_CHECKING:
    from collections.abc import Callable

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

    from kept.store.home import Home
    from kept.store.run_index import RunIndex
    from kept.ui.cli._open_run import runs_below
    from kept.ui.report.format import recipe_word

    home = Home.find(Path.cwd())
    # without runs, do not open the index: that would create its folder
    rows = RunIndex(home).with_iterations() if home.folders() else []
    if as_json:
        document: list[dict[str, Any]] = []
        for row in rows[:limit]:
            folder = home.runs / row.id
            told = _COMPARED.get(row.recipe, _nothing)(folder)
            document.append(
                {k: v for k, v in asdict(row).items() if k not in ("size", "spark")}
                | {"recipe": recipe_word(row.recipe)}
                | {"comparison": told.document() if told is not None else None}
                | {"folder": row.folder or str(folder)}
            )
        _output.document(document)
    elif rows:
        header = ("run", "status", "kept", "result", "spec")
        cells = [_cells(row, home.runs / row.id) for row in rows[:limit]]
        # never cut the id: a part of it does not find the run
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


def _nothing(folder: Path) -> None:
    """None for a run that compares nothing."""


_COMPARED: Mapping[str, "Callable[[Path], Comparison | None]"] = {COMPARE: _comparison}


def _ending(folder: Path) -> tuple[str, str]:
    """End and task of an agent run."""
    from kept.core.text import one_line
    from kept.orchestrator.loss import run_loss
    from kept.recipes.agent_run.journal_view import agent_run_of
    from kept.store.reader import Run

    with Run(folder) as run:
        record = agent_run_of(run)
    if record is None:
        return "", ""
    return f"{record.status}, loss {run_loss(record).total:.4f}", one_line(record.task, 60)


class Cells(NamedTuple):
    """Columns of a run that differ between recipes."""

    kept: str
    result: str
    spec: str


def _cells(row: "RunRow", folder: Path) -> tuple[str, ...]:
    from kept.ui.report.format import number, recipe_word

    if row.refinement:
        loss = f"loss {number(row.best_value)}"
        return (row.id, row.status, f"iteration {row.iteration}", loss, f"from {row.parent_run_id}")
    result = f"{row.metric} {number(row.seed_value)}" if row.steps else ""
    if row.keeps and row.best_value != row.seed_value:
        result += f" → {number(row.best_value)}"
    spec = path_from_here(row.spec) if row.spec else recipe_word(row.recipe) or row.reason
    usual = Cells(f"{row.keeps} of {row.tried}", result, spec)
    own = CELLS.get(row.recipe)
    return (row.id, row.status, *(own(row, folder, usual) if own else usual))


def _compared(row: "RunRow", folder: Path, usual: Cells) -> Cells:
    """Columns of a comparison; without answers (`--plan`) the usual result."""
    from kept.ui.report.compare import answers

    told = _comparison(folder)
    answered = answers(told) if told is not None else ""
    return usual._replace(kept="comparison", result=answered or usual.result)


def _measured(row: "RunRow", folder: Path, usual: Cells) -> Cells:
    from kept.ui.cli.eval import read_sweep
    from kept.ui.report.eval_report import totals

    sweep = read_sweep(folder, traces=False)
    return usual._replace(kept="eval", result=totals(sweep) if sweep is not None else "")


def _agent(row: "RunRow", folder: Path, usual: Cells) -> Cells:
    return Cells("agent", *_ending(folder))


CELLS: Mapping[str, "Callable[[RunRow, Path, Cells], Cells]"] = {
    COMPARE: _compared,
    EVALUATE: _measured,
    AGENT_RUN: _agent,
}
"""Column functions for recipes whose columns differ from those of a run with steps."""
