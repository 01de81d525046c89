"""`kept report [RUN]`."""

from pathlib import Path

import click

from kept.ui.cli.command import Command
from kept.ui.cli.options import json_option, run_argument


@click.command(
    cls=Command, examples=("kept report", "kept report last --json", "kept report last --html")
)
@run_argument
@json_option
@click.option("--html", is_flag=True, help="Write the run's page to report.html, one file.")
def report(run: str, as_json: bool, html: bool) -> None:
    """Print the report of a run.

    What was asked, what came of it, each kept change with its evidence, what was refused and why,
    what it took, and what the figures do not show. Written anew to report.md in the run's folder.
    With --html, the page that `kept view` shows of it as one file, which opens anywhere. RUN is an
    id, the start or end of one, a folder, or `last`.
    """
    from kept.ui.cli import _output
    from kept.ui.cli._open_run import open_run
    from kept.ui.cli.names import path_from_here
    from kept.ui.report.json import as_json as document
    from kept.ui.report.page import markdown
    from kept.ui.report.write import write_report

    past = open_run(run)
    if html:
        past.close()
        _write_page(past.folder)
        return
    try:
        text = write_report(past)
    except OSError as error:
        # a run may be looked at where nothing can be written
        path = path_from_here(past.folder / "report.md")
        _output.note(f"cannot write {path}: {error.strerror}")
        text = markdown(past)
    if as_json:
        _output.document(document(past))
    else:
        _output.answer(_output.visible(text).removesuffix("\n"))
    past.close()


def _write_page(folder: Path) -> None:
    """The page beside the report, and where it is."""
    from kept.errors import SetupError
    from kept.store.files import write_file
    from kept.ui.cli import _output
    from kept.ui.cli.names import path_from_here
    from kept.ui.cli.view import pages

    path = folder / "report.html"
    text = pages().export(folder)
    try:
        write_file(path, text.encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise SetupError(f"cannot write {path}: {error.strerror}") from error
    _output.answer(path_from_here(path))
