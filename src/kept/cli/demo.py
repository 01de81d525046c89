"""`kept demo`."""

from pathlib import Path

import click

from kept.cli.command import Command
from kept.cli.options import json_option, quiet_option


@click.command(cls=Command, examples=("kept demo", "kept demo --keep my-first-task"))
@click.option(
    "--keep",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Put the task and its run here, in a new or empty folder.",
)
@json_option
@quiet_option
def demo(keep: Path | None, as_json: bool, quiet: bool) -> int:
    """Watch a small run without a key or a network.

    Copies a task to a folder of its own and improves it there. Each line says what was tried, and
    whether it was kept or refused, and why.
    """
    import tempfile

    from kept.cli import output
    from kept.cli.compiling import compiled
    from kept.cli.names import path_from_here
    from kept.cli.sitting import How, start_run
    from kept.demo import copy_demo
    from kept.settings import program
    from kept.store.home import Home

    folder = keep or Path(tempfile.mkdtemp(prefix="kept-demo-"))
    task = copy_demo(folder)
    if not quiet:
        output.note(f"the task is {path_from_here(task)}; nothing outside its folder is touched")
    plan = compiled(task)
    # a home of its own: what is tried out here does not belong among a project's runs
    code = start_run(plan, Home(folder / ".kept"), How(json=as_json, quiet=quiet))
    if not as_json and code == 0:
        output.answer(f"task       {path_from_here(task)}: change it, then")
        output.answer(f"           {program()} optimize {path_from_here(task)}")
    return code
