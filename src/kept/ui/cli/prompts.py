"""`kept prompts`: list, show, copy."""

from pathlib import Path

import click

from kept.errors import SetupError
from kept.models.prompts import ABOUT, ASKED, METRICS, NAMES, PLACEHOLDERS, prompt
from kept.ui.cli import _output
from kept.ui.cli._command import Command, Commands, json_option, path_from_here

NAME = click.Choice(NAMES)


@click.group(cls=Commands, examples=("kept prompts list", "kept prompts copy prompts edit"))
def prompts() -> None:
    """Look at what models are told, and copy it out.

    A task or an agent puts files of its own in their place: `prompts: FOLDER`. In a task
    `prompt: FILE` of one proposer or judge does, in an agent `custom_prompt` of one metric.
    """


@prompts.command("list", cls=Command, examples=("kept prompts list",))
@json_option
def list_prompts(as_json: bool) -> None:
    """List the prompts, what each is for, and what may stand in it."""
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
        _output.document(rows)
        return
    _output.answer(_output.table(("prompt", "what the model does"), list(ABOUT.items())))
    # group prompts by their placeholders, in the form in which they are written
    written = {n: ", ".join(f"{{{{kept.{one}}}}}" for one in PLACEHOLDERS[n]) for n in NAMES}
    for places in dict.fromkeys(written.values()):
        names = ", ".join(name for name in NAMES if written[name] == places)
        if places:
            # below the table: inside it they would be cut
            _output.answer(f"\nplaceholders of {names}:\n  {places}")


@prompts.command(cls=Command, examples=("kept prompts show edit",))
@click.argument("name", type=NAME, metavar="NAME")
@json_option
def show(name: str, as_json: bool) -> None:
    """Print one of Kept's own prompts."""
    text = next(prompt(one) for one in NAMES if one == name)
    if as_json:
        _output.document({"name": name, "text": text})
    else:
        _output.answer(text.rstrip("\n"))


@prompts.command(cls=Command, examples=("kept prompts copy prompts", "kept prompts copy mine edit"))
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.argument("names", type=NAME, nargs=-1, metavar="[NAME]...")
@json_option
def copy(folder: Path, names: tuple[str, ...], as_json: bool) -> None:
    """Copy prompts to a folder, to be changed.

    All that a task asks, or for a folder beside an agent.yaml all that its metrics ask, unless
    some are named. The folder is made; no file that is there is overwritten.
    """
    # the nearest folder above that has a spec decides, task.yaml first
    above = folder.absolute().parents
    specs = (
        spec for base in above for spec in ("task.yaml", "agent.yaml") if (base / spec).is_file()
    )
    usual = METRICS if next(specs, "") == "agent.yaml" else ASKED
    chosen = [name for name in NAMES if name in (names or usual)]
    paths = {name: folder / f"{name}.md" for name in chosen}
    if there := [path for path in paths.values() if path.exists()]:
        hint = "name another folder, or the prompts that you want"
        raise SetupError(f"`{path_from_here(there[0])}` is there already", hint=hint)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, path in paths.items():
            with path.open("x", encoding="utf-8") as file:  # `x` follows no link
                file.write(prompt(name))
    except OSError as error:
        raise SetupError(f"cannot write to `{folder}`: {error.strerror}") from error
    if as_json:
        _output.document([str(path) for path in paths.values()])
        return
    for path in paths.values():
        _output.answer(path_from_here(path))
    spec = "agent.yaml" if set(chosen) <= set(METRICS) else "task.yaml"
    _output.note(f"\n{_in_the_spec(folder, spec)} has them stand for Kept's own")


def _in_the_spec(folder: Path, spec: str) -> str:
    """Setting that names this folder in a spec, relative to the spec."""
    whole = folder.absolute()
    base = next((parent for parent in whole.parents if (parent / spec).is_file()), None)
    if base is None:
        name = path_from_here(whole)
        return f"`prompts: FOLDER` in {spec}, which is `{name}` as seen from that folder,"
    return f"`prompts: {whole.relative_to(base)}` in `{path_from_here(base / spec)}`"
