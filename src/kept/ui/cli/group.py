"""The group behind `kept`: it imports commands at their use, and tells errors in words."""

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NoReturn

import click

from kept.ui.cli.command import write_examples
from kept.ui.cli.commands import COMMANDS, SECTIONS
from kept.ui.cli.fail import exit_code_of
from kept.ui.cli.streams import make_streams_robust

EXAMPLES = ("kept demo", "kept optimize task.yaml", "kept report")


class LazyGroup(click.Group):
    """Knows the names of its commands; loads a command's module when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every command, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """A command, from its module."""
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        module = import_module(f"kept.ui.cli.{entry.module}")
        command = getattr(module, entry.attribute or entry.name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Commands by section, from the table alone."""
        for section in SECTIONS:
            rows = [(e.name, e.summary) for e in COMMANDS.values() if e.section == section]
            if rows:
                with formatter.section(section):
                    formatter.write_dl(rows)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """A first look."""
        write_examples(formatter, EXAMPLES)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that is meant; a name that is none is told with the nearest one."""
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            raise click.UsageError(f"there is no command `{name}`{_guess(name)}", ctx)
        return super().resolve_command(ctx, args)

    def main(  # pyright: ignore[reportIncompatibleMethodOverride] # as click's own default mode
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        **extra: Any,  # noqa: ANN401 # click's own signature
    ) -> NoReturn:
        """Run and exit: 0 finished, 1 no gain, 2 could not run, 3 cut short, 130 interrupted."""
        extra.pop("standalone_mode", None)
        make_streams_robust()
        try:
            code = super().main(args, prog_name or "kept", standalone_mode=False, **extra)
            if sys.stdout is not None:  # pyright: ignore[reportUnnecessaryComparison] # it is with `>&-`
                sys.stdout.flush()
        except Exception as error:  # noqa: BLE001 # the last stop: no traceback reaches a person
            code = exit_code_of(error)
        sys.exit(code if isinstance(code, int) else 0)


def _guess(name: str) -> str:
    if name.endswith((".yaml", ".yml")):
        return f"; `kept optimize {name}` may be meant"
    # at use: only a slip of the finger needs it
    import difflib

    near = difflib.get_close_matches(name, COMMANDS, n=1)
    return f"; `{near[0]}` may be meant" if near else ""
