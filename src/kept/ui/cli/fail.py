"""How a command that could not do its work tells so, and which exit code it ends with."""

from pathlib import Path

import click

from kept.errors import KeptError, SpecError
from kept.settings import debug

NO_GAIN = 1
COULD_NOT_RUN = 2
CUT_SHORT = 3
INTERRUPTED = 130


class CutShortError(Exception):
    """An error that came up when a run was under way; its journal is intact."""

    def __init__(self, cause: Exception, resume: str) -> None:
        super().__init__(str(cause))
        self.cause = cause
        self.resume = resume
        """The command that goes on with the run."""


def exit_code_of(error: Exception) -> int:
    """Tell an error on stderr; the code to end with."""
    match error:
        case CutShortError(cause=cause, resume=resume):
            _tell(cause, resume)
            return CUT_SHORT
        case click.Abort():
            click.echo("interrupted", err=True)
            return INTERRUPTED
        case click.UsageError() if type(error).__name__ == "NoArgsIsHelpError":
            # by its name: older versions of click print the help themselves
            click.echo(error.format_message(), err=True)
            return COULD_NOT_RUN
        case click.UsageError():
            _print(_plain(error.format_message()), _here(error) or _usage(error.ctx))
            return COULD_NOT_RUN
        case click.ClickException():
            _print(_plain(error.format_message()), None)
            return COULD_NOT_RUN
        case _:
            _tell(error, None)
            return COULD_NOT_RUN


def _tell(error: Exception, resume: str | None) -> None:
    if isinstance(error, SpecError):
        for problem in error.problems:
            click.echo(f"error: {problem}", err=True)
        return
    go_on = f"`{resume}` goes on where it stopped" if resume else None
    if isinstance(error, KeptError):
        _print(error.message, error.hint, go_on)
        return
    if debug():
        # at use: `traceback` costs a start-up that nearly never needs it
        import traceback

        traceback.print_exception(error)
    hint = None if debug() else "run it again with KEPT_DEBUG=1 to see where, and report it"
    _print(f"internal error: {type(error).__name__}: {error}", hint, go_on)


def _print(message: str, *hints: str | None) -> None:
    click.echo(f"error: {message}", err=True)
    told = [hint for hint in hints if hint]
    if told:
        click.echo(err=True)
    for hint in told:
        click.echo(f"hint: {hint}", err=True)


def _plain(message: str) -> str:
    """A message of click's in our own style: lower case, no full stop."""
    message = message.rstrip(".")
    return message[:1].lower() + message[1:]


def _usage(ctx: click.Context | None) -> str | None:
    return f"`{ctx.command_path} --help` shows how it is used" if ctx else None


def _here(error: click.UsageError) -> str | None:
    """What to write where a spec is missing, and there is one in this folder."""
    if not isinstance(error, click.MissingParameter) or error.ctx is None or error.param is None:
        return None
    found = [name for name in ("task.yaml", "agent.yaml") if Path(name).is_file()]
    if error.param.name not in ("spec", "task") or not found:
        return None
    return f"`{error.ctx.command_path} .` takes the {found[0]} of this folder"
