"""`kept show [RUN]`."""

import click

from kept.cli.command import Command
from kept.cli.options import json_option, run_argument, step_option


@click.command(
    cls=Command, examples=("kept show", "kept show last --step 0", "kept show last --step 0 -v")
)
@run_argument
@step_option
@click.option("-v", "--traces", is_flag=True, help="With --step: what happened in each rollout.")
@json_option
def show(run: str, step: int | None, traces: bool, as_json: bool) -> None:
    """Show what a run did, step by step.

    With --step, all there is of one step: what was proposed and why, what became of each edit, the
    change, the verdict with its figures, and every rollout. Works while the run goes on. RUN is an
    id, the start or end of one, a folder, or `last`.
    """
    if traces and step is None:
        raise click.UsageError("--traces needs --step")
    _show_run(run, as_json) if step is None else _show_step(run, step, traces, as_json)


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


def _show_step(name: str, step: int, traces: bool, as_json: bool) -> None:
    from kept.cli import output
    from kept.cli.looking import check_step, open_run
    from kept.cli.texts import step_text
    from kept.report.step import step_detail, step_json

    past = open_run(name)
    check_step(past, step)
    detail = step_detail(past, step, traces=traces)
    past.close()
    if as_json:
        output.document(step_json(detail))
    else:
        output.answer(step_text(detail, traces=traces))
