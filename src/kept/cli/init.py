"""`kept init [KIND] [FOLDER]`."""

from pathlib import Path

import click

from kept.cli.command import Command
from kept.scaffold import KINDS, scaffold


@click.command(cls=Command, examples=("kept init", "kept init skill my-skill"))
@click.argument("kind", type=click.Choice(KINDS), default=KINDS[0])
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), required=False)
def init(kind: str, folder: Path | None) -> None:
    """Write a small task that runs at once, to be changed.

    KIND says what it improves: a prompt, which is the default, a skill, a config file or code.
    FOLDER is made, `my-KIND` by default. No file that is there is overwritten.
    """
    import shlex

    from kept.cli import output
    from kept.cli.names import path_from_here
    from kept.settings import program

    where = folder or Path(f"my-{kind}")
    for path in scaffold(kind, where):
        output.answer(path_from_here(path))
    # from inside, for that is where its runs will be found
    go = [] if where.resolve() == Path.cwd() else [f"cd {shlex.quote(str(where))}"]
    kept = program()
    if go and "/" in kept:
        kept = str(Path(kept).absolute())
    steps = [*go, f"{kept} optimize .", f"{kept} adopt"]
    output.note("\nnext: " + "\n      ".join(steps))
