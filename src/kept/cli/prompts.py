"""`kept prompts`: list, show, copy."""

from pathlib import Path

import click

from kept.cli.command import Command, Commands
from kept.cli.options import json_option
from kept.prompts import NAMES

NAME = click.Choice(NAMES)


@click.group(cls=Commands, examples=("kept prompts list", "kept prompts copy prompts edit"))
def prompts() -> None:
    """Look at what models are told, and copy it out.

    A task puts files of its own in their place: `prompts: FOLDER`, or `prompt: FILE` of one
    proposer or judge.
    """


@prompts.command("list", cls=Command, examples=("kept prompts list",))
@json_option
def list_prompts(as_json: bool) -> None:
    """List the prompts, what each is for, and what may stand in it."""
    from kept.cli import output
    from kept.prompts import ABOUT, PLACEHOLDERS, prompt

    if as_json:
        rows = [
            {
                "name": name,
                "about": ABOUT[name],
                "placeholders": dict(PLACEHOLDERS[name]),
                "text": prompt(name),
            }
            for name in NAMES
        ]
        output.document(rows)
        return
    cells = [(name, ABOUT[name], ", ".join(PLACEHOLDERS[name])) for name in NAMES]
    output.answer(output.table(("prompt", "what the model does", "placeholders"), cells))


@prompts.command(cls=Command, examples=("kept prompts show edit",))
@click.argument("name", type=NAME)
def show(name: str) -> None:
    """Print one of Kept's own prompts."""
    from kept.cli import output
    from kept.prompts import prompt

    output.answer(next(prompt(one) for one in NAMES if one == name).rstrip("\n"))


@prompts.command(cls=Command, examples=("kept prompts copy prompts", "kept prompts copy mine edit"))
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.argument("names", type=NAME, nargs=-1, metavar="[NAME]...")
@json_option
def copy(folder: Path, names: tuple[str, ...], as_json: bool) -> None:
    """Copy prompts to a folder, to be changed.

    All that a task can name, unless some are named. The folder is made; no file that is there is
    overwritten.
    """
    from kept.cli import output
    from kept.cli.names import path_from_here
    from kept.errors import SetupError
    from kept.prompts import prompt

    chosen = [name for name in NAMES if (name in names if names else name != "component")]
    paths = {name: folder / f"{name}.md" for name in chosen}
    if there := [path for path in paths.values() if path.exists()]:
        hint = "name another folder, or the prompts that you want"
        raise SetupError(f"`{path_from_here(there[0])}` is there already", hint=hint)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, path in paths.items():
            path.write_text(prompt(name), encoding="utf-8")
    except OSError as error:
        raise SetupError(f"cannot write to `{folder}`: {error.strerror}") from error
    if as_json:
        output.document([str(path) for path in paths.values()])
        return
    for path in paths.values():
        output.answer(path_from_here(path))
    output.note(f"\n`prompts: {folder}` in a task has them stand for Kept's own")
