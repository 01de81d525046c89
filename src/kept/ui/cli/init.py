"""`kept init [KIND] [FOLDER]`, and `kept init --from FILE [FOLDER]`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kept.settings import program
from kept.ui.cli import _output
from kept.ui.cli._command import Command, json_option, path_from_here
from kept.ui.scaffold import KINDS, scaffold

if TYPE_CHECKING:
    from kept.recipes.importers import Wish

_KINDS = f"[{'|'.join(KINDS)}]"


@click.command(
    cls=Command,
    examples=(
        "kept init",
        "kept init skill my-skill",
        "kept init --from promptfooconfig.yaml my-bot",
        "kept init --from cases.csv --model openai/gpt-5-mini",
        "kept init --from cases.jsonl --prompt-file prompt.md my-answers",
    ),
)
@click.argument("kind", metavar=_KINDS, required=False)
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), required=False)
@click.option(
    "--from",
    "given",
    metavar="FILE",
    help="Make the task from what you have: a promptfoo config, cases in .jsonl, .json or .csv, a "
    "SKILL.md, or a function in a .py file, as FILE:NAME where it has several.",
)
@click.option("--model", metavar="NAME", help="With --from: the model that is asked.")
@click.option("--prompt", metavar="LABEL", help="With --from: which prompt of a config to improve.")
@click.option(
    "--prompt-file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="With --from of cases: the prompt to begin with.",
)
@click.option(
    "--cases",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="With --from: what a skill or a function is tried on.",
)
@json_option
def init(
    kind: str | None,
    folder: Path | None,
    given: str | None,
    model: str | None,
    prompt: str | None,
    prompt_file: Path | None,
    cases: Path | None,
    as_json: bool,
) -> None:
    """Write a small task that runs at once, to be changed.

    KIND says what it is about: a prompt, which is the default, a skill, a config file, code, or an
    agent with test cases.
    FOLDER is made, `my-KIND` by default. No file that is there is overwritten.

    With --from the task is made from a file of yours, which is copied and stays as it is. All that
    is wrong with it is told, by its lines.
    """
    import shlex

    if given is not None:
        if kind is not None and folder is not None:
            raise click.UsageError("with --from there is only a FOLDER")
        from kept.recipes.importers import Wish

        # the folder is named after the file unless one is given
        stem = Path(given.partition(".py:")[0]).stem.lower()
        stem = "prompt" if stem == "promptfooconfig" else stem
        where = Path(kind) if kind else Path(f"my-{stem}")
        written = _from(given, Wish(model, prompt, cases, prompt_file), where)
    else:
        if model or prompt or cases or prompt_file:
            raise click.UsageError("--model, --prompt, --prompt-file and --cases go with --from")
        kind = kind or KINDS[0]
        if kind not in KINDS:
            raise click.BadParameter(f"{kind!r} is not one of {', '.join(KINDS)}.")
        where = folder or Path(f"my-{kind}")
        written = scaffold(kind, where)
    if as_json:
        _output.document({"folder": str(where.absolute()), "written": [*map(str, written)]})
    for path in () if as_json else written:
        _output.answer(path_from_here(path))
    # next commands start inside the folder, because its runs are found from there
    go = [] if where.resolve() == Path.cwd() else [f"cd {shlex.quote(str(where))}"]
    kept = program()
    if go and "/" in kept:
        kept = str(Path(kept).absolute())
    first = ["eval ."] if kind == "agent" and given is None else ["optimize .", "adopt"]
    steps = [*go, *(f"{kept} {words}" for words in first)]
    _output.note("\nnext: " + "\n      ".join(steps))


def _from(given: str, wish: "Wish", where: Path) -> list[Path]:
    from kept.recipes.importers import draft_from, write

    draft = draft_from(given, wish)
    written = write(draft.files, where)
    for note in draft.notes:
        _output.warn(note)
    return written
