"""`kept report [RUN]`."""

from pathlib import Path

import click

from kept.cli.command import Command
from kept.cli.options import json_option, run_argument


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
    from kept.cli import output
    from kept.cli.looking import open_run
    from kept.cli.names import path_from_here
    from kept.report import as_json as document
    from kept.report import markdown, write_report

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
        output.note(f"cannot write {path}: {error.strerror}")
        text = markdown(past)
    if as_json:
        output.document(document(past))
    else:
        output.answer(output.visible(text).removesuffix("\n"))
    past.close()


def _write_page(folder: Path) -> None:
    """The page beside the report, and where it is."""
    from kept.cli import output
    from kept.cli.names import path_from_here
    from kept.cli.view import pages
    from kept.errors import SetupError
    from kept.store.files import write_file

    path = folder / "report.html"
    text = pages().export(folder)
    try:
        write_file(path, text.encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise SetupError(f"cannot write {path}: {error.strerror}") from error
    output.answer(path_from_here(path))
