"""A click command that knows examples of its use, so that help shows them and a test runs them."""

from typing import Any

import click

from kept.errors import KeptError
from kept.ui.cli.fail import CutShortError


class Command(click.Command):
    """A command with examples at the end of its help."""

    def __init__(self, *args: Any, examples: tuple[str, ...] = (), **kwargs: Any) -> None:  # noqa: ANN401 # handed on to click
        super().__init__(*args, **kwargs)
        self.examples = examples

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 # click's own signature
        """Run it; with `--json` an error is a document too."""
        try:
            return super().invoke(ctx)
        except (KeptError, CutShortError) as error:
            if ctx.params.get("as_json"):
                # at use: only an error needs it
                from kept.ui.cli.problems import tell_as_json

                tell_as_json(error)
            raise

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The examples, one a line."""
        write_examples(formatter, self.examples)


class Commands(Command, click.Group):
    """Commands under one name, each with examples of its own."""


def write_examples(formatter: click.HelpFormatter, examples: tuple[str, ...]) -> None:
    """A section of command lines, never wrapped."""
    if examples:
        with formatter.section("Examples"):
            for example in examples:
                formatter.write(f"{'':>{formatter.current_indent}}{example}\n")
