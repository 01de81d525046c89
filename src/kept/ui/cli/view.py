"""`kept view [RUN]`."""

from typing import Any

import click

from kept.errors import SetupError
from kept.ui.cli import _output
from kept.ui.cli._command import Command, json_option, show_log

GROUP = "kept.pages"
"""Entry point group of the pages: this package does not import them."""


@click.command(cls=Command, examples=("kept view", "kept view last", "kept view --port 8000"))
@click.argument("run", required=False)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    metavar="N",
    help="Listen here; by default on any port that is free.",
)
@click.option("--no-browser", is_flag=True, help="Print the link, and open nothing.")
@json_option
def view(run: str | None, port: int, no_browser: bool, as_json: bool) -> None:
    """Look at runs in a browser, live and after.

    Serves pages on this machine alone, to whoever has the link that is printed, until interrupted.
    RUN is an id, the start or end of one, a run's folder, `last`, or the folder of a project;
    without it, the list of all runs.
    """
    import webbrowser

    from kept.ui.cli.main import settled

    show_log()
    home, path = _place(run)
    served = pages()

    def opened(link: str) -> None:
        _output.address(link, as_json=as_json)
        _output.note("for this browser alone; interrupt to stop")
        if not no_browser:
            webbrowser.open(link)

    with settled():
        served.serve(home, path, port, opened)


def pages() -> Any:  # noqa: ANN401 # whatever the entry point names; it says itself what it lacks
    """Load the object that serves and exports pages."""
    from importlib.metadata import entry_points

    found = next(iter(entry_points(group=GROUP)), None)
    if found is None:
        raise SetupError(
            "this installation of kept does not say where its pages are",
            hint="install kept again, from where it was installed, with its extra `web`",
        )
    return found.load()()


def _place(run: str | None) -> tuple[Any, str]:
    """Home to serve, and path of the page to open."""
    from pathlib import Path
    from urllib.parse import quote

    from kept.store.home import Home
    from kept.ui.cli._open_run import open_run

    if run is None:
        return Home.find(Path.cwd()), "/"
    folder = Path(run)
    if folder.is_dir() and not (folder / "journal.jsonl").is_file():
        return Home(folder) if folder.name == ".kept" else Home.find(folder), "/"
    past = open_run(run)
    past.close()
    found = past.folder.resolve()
    return Home.around(found), f"/runs/{quote(found.name, safe='')}"
