"""`kept`: where a command line begins."""

import click

from kept._version import __version__
from kept.ui.cli.fail import COULD_NOT_RUN
from kept.ui.cli.garbage import put_off
from kept.ui.cli.group import LazyGroup


@click.group(
    name="kept",
    cls=LazyGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 88},
)
@click.version_option(__version__, prog_name="kept", message="%(prog)s %(version)s")
@click.pass_context
def cli(ctx: click.Context) -> int | None:
    """Kept improves text against evidence, and keeps only what measures better."""
    if ctx.invoked_subcommand is not None:
        return None
    click.echo(ctx.get_help(), err=True)
    return COULD_NOT_RUN


def main() -> None:
    """The entry point of the installed command."""
    put_off()
    cli.main()
