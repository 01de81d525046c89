"""`kept report [RUN]`."""

import click

from kept.cli.command import Command
from kept.cli.options import json_option, run_argument


@click.command(cls=Command, examples=("kept report", "kept report last --json"))
@run_argument
@json_option
def report(run: str, as_json: bool) -> None:
    """Print the report of a run.

    What was asked, what came of it, each kept change with its evidence, what was refused and why,
    what it took, and what the figures do not show. Written anew to report.md in the run's folder.
    RUN is an id, the start or end of one, a folder, or `last`.
    """
    from kept.cli import output
    from kept.cli.looking import open_run
    from kept.cli.names import path_from_here
    from kept.report import as_json as document
    from kept.report import markdown, write_report

    past = open_run(run)
    try:
        text = write_report(past)
    except OSError as error:
        # a run may be looked at where nothing can be written
        path = path_from_here(past.folder / "report.md")
        output.note(f"cannot write {path}: {error.strerror}")
        text = markdown(past)
    if as_json:
        output.document(document(past))
    else:
        output.answer(output.visible(text).removesuffix("\n"))
    past.close()
