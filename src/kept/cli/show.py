"""`kept show [RUN]`."""

from pathlib import Path

import click

from kept.cli.command import Command
from kept.cli.options import json_option, run_argument, step_option


@click.command(
    cls=Command, examples=("kept show", "kept show last --step 0", "kept show last --step 0 -v")
)
@run_argument
@step_option
@click.option("-v", "--traces", is_flag=True, help="With --step: what happened in each rollout.")
@click.option(
    "--save",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="With --step: write what its commands and agents left to a new folder.",
)
@json_option
def show(run: str, step: int | None, traces: bool, save: Path | None, as_json: bool) -> None:
    """Show what a run did, step by step.

    With --step, all there is of one step: what was proposed and why, what became of each edit, the
    change, the verdict with its figures, and every rollout. Works while the run goes on. RUN is an
    id, the start or end of one, a folder, or `last`.
    """
    if step is not None:
        _show_step(run, step, traces, save, as_json)
        return
    for name, given in (("--traces", traces), ("--save", save)):
        if given:
            raise click.UsageError(f"{name} needs --step")
    _show_run(run, as_json)


def _show_run(name: str, as_json: bool) -> None:
    from kept.cli import output
    from kept.cli.looking import open_run
    from kept.cli.texts import run_text
    from kept.report import headline, summary
    from kept.report.document import step_row

    past = open_run(name)
    told = summary(past)
    past.close()
    if as_json:
        rows = [step_row(row) for row in told.steps]
        output.document({**headline(told), "closed": rows, "open": list(told.open)})
    else:
        output.answer(run_text(told))


def _show_step(name: str, step: int, traces: bool, save: Path | None, as_json: bool) -> None:
    from kept.cli import output
    from kept.cli.looking import check_step, open_run
    from kept.cli.texts import step_text
    from kept.core.words import count
    from kept.report.left import save_left
    from kept.report.step import step_detail, step_json

    past = open_run(name)
    check_step(past, step)
    detail = step_detail(past, step, traces=traces)
    if save is not None:
        saved = save_left(past, detail, save)
        output.note(f"{save} holds what {count(saved, 'execution')} left")
    past.close()
    if as_json:
        output.document(step_json(detail))
    else:
        output.answer(step_text(detail, traces=traces))
