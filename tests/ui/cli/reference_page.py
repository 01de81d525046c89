"""docs/reference/cli.md, made from the help that the commands print. `scripts/help` writes it."""

from collections.abc import Iterator
from pathlib import Path

import click

from kept.ui.cli.main import COMMANDS, SECTIONS, cli

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "cli.md"
WIDTH = 88
INTRO = """# Commands

What `kept --help` and the `--help` of each command print. Written by `scripts/help`.

Exit codes: 0 finished; 1 finished without a gain, only with `--fail-if-no-gain`; 2 could not run
(usage, spec, setup); 3 stopped by an error, or nothing kept and the seed fails wherever
anything was compared with it; the journal is intact; 130 interrupted, resumable.

Environment: `KEPT_HOME` names the folder for runs, `KEPT_CACHE` that for weights of models,
`KEPT_ARTIFACTS` the file with versions of the prompts of agent runs, `KEPT_READABLE` paths that
commands may read in any sandbox, `KEPT_DEBUG=1` shows the traceback of an internal error,
`NO_COLOR` forbids colours.
"""


def help_of(command: click.Command, name: str, parent: click.Context | None = None) -> str:
    context = click.Context(
        command,
        info_name=name,
        parent=parent,
        terminal_width=WIDTH,
        help_option_names=["-h", "--help"],
    )
    return command.get_help(context).rstrip()


def helps(command: click.Command, name: str, parent: click.Context) -> Iterator[tuple[str, str]]:
    """The help of a command, and of those under it."""
    yield name, help_of(command, name, parent)
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=name, parent=parent)
        for inner, found in command.commands.items():
            yield f"{name} {inner}", help_of(found, inner, context)


def reference_page() -> str:
    top = click.Context(cli, info_name="kept")
    parts = [INTRO, f"```text\n{help_of(cli, 'kept')}\n```\n"]
    for section in SECTIONS:
        entries = [entry for entry in COMMANDS.values() if entry.section == section]
        if entries:
            parts.append(f"## {section}\n")
        for entry in entries:
            command = cli.get_command(top, entry.name)
            assert command is not None
            parts += (
                f"### kept {name}\n\n```text\n{text}\n```\n"
                for name, text in helps(command, entry.name, top)
            )
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(reference_page(), encoding="utf-8")
