"""`kept test run AGENT`, and `kept test AGENT`, which is the same."""

from pathlib import Path
from typing import Any

import click

from kept.ui.cli.command import Command, Commands
from kept.ui.cli.evaluate import Options, sweep, sweep_options
from kept.ui.cli.tune import tune
from kept.ui.cli.view import view


class RunByDefault(Commands):
    """What is no command of it is the file of an agent."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that is meant."""
        if args[0] not in self.commands and Path(args[0]).suffix in (".yaml", ".yml"):
            args = ["run", *args]
        return super().resolve_command(ctx, args)


@click.group(cls=RunByDefault, examples=("kept test run agent.yaml", "kept test agent.yaml -n 5"))
def test() -> None:
    """Test the agent of an agent.yaml on its cases."""


@test.command(
    cls=Command,
    examples=("kept test run agent.yaml", "kept test run agent.yaml --format junit -o report.xml"),
)
@click.argument("agent", type=click.Path(path_type=Path), default="agent.yaml")
@sweep_options
@click.option(
    "--parallel-test-cases",
    type=click.IntRange(min=1),
    metavar="N",
    help="The same as --workers.",
)
def run(agent: Path, parallel_test_cases: int | None, **options: Any) -> int:  # noqa: ANN401 # those of `sweep_options`
    """Run the test cases of AGENT, and say which of them pass.

    The same as `kept eval AGENT`. Exits with 0 where all cases pass, 1 where some fail, 2 where
    AGENT is wrong, 3 where some could not be run and 4 where some could not be measured.
    """
    options["workers"] = options["workers"] or parallel_test_cases
    return sweep(agent, Options(**options))


test.add_command(tune)
test.add_command(
    Command(
        "view",
        callback=view.callback,
        params=view.params,
        help=view.help,
        examples=("kept test view", "kept test view last --no-browser"),
    )
)
