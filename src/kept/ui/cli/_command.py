"""CLI command base: errors and exit codes, examples, shared options, logs, model server.

Tests run the examples of the help. With `--json` errors are JSON too, because a document is
promised in any case. Log messages of the library appear as warnings. The server runs in the
foreground and prints its address.
"""

import logging
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from kept.errors import KeptError, Problem, SpecError
from kept.settings import debug, program
from kept.ui.cli import _output
from kept.ui.cli._output import warn

NO_GAIN = 1
COULD_NOT_RUN = 2
CUT_SHORT = 3
INTERRUPTED = 130


class CutShortError(Exception):
    """Error during a run that had started; its journal is intact."""

    def __init__(self, cause: Exception, resume: str) -> None:
        super().__init__(str(cause))
        self.cause = cause
        self.resume = resume
        """Command that resumes the run."""


def exit_code_of(error: Exception) -> int:
    """Print an error to stderr and return the exit code."""
    match error:
        case CutShortError(cause=cause, resume=resume):
            _tell(cause, resume)
            return CUT_SHORT
        case click.Abort():
            click.echo("interrupted", err=True)
            return INTERRUPTED
        case click.UsageError() if type(error).__name__ == "NoArgsIsHelpError":
            # checked by name: older versions of click print the help themselves
            click.echo(error.format_message(), err=True)
            return COULD_NOT_RUN
        case click.UsageError():
            at = error.ctx
            usage = f"`{at.command_path} --help` shows how it is used" if at else None
            _print(_plain(error.format_message()), _here(error) or usage)
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
        # imported at use: `traceback` slows every start and is rarely needed
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
    """Message of click in our style: lower case, no full stop."""
    message = message.rstrip(".")
    return message[:1].lower() + message[1:]


def _here(error: click.UsageError) -> str | None:
    """Hint if a spec argument is missing and this folder holds one."""
    if not isinstance(error, click.MissingParameter) or error.ctx is None or error.param is None:
        return None
    found = [name for name in ("task.yaml", "agent.yaml") if Path(name).is_file()]
    if error.param.name not in ("spec", "task") or not found:
        return None
    return f"`{error.ctx.command_path} .` takes the {found[0]} of this folder"


class Command(click.Command):
    """Command with examples at the end of its help."""

    def __init__(self, *args: Any, examples: tuple[str, ...] = (), **kwargs: Any) -> None:  # noqa: ANN401 # handed on to click
        super().__init__(*args, **kwargs)
        self.examples = examples

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 # click's own signature
        """Run the command; with `--json` an error prints a document too."""
        try:
            return super().invoke(ctx)
        except (KeptError, CutShortError) as error:
            if ctx.params.get("as_json"):
                # problems go to stdout; the error itself still goes to stderr
                _output.document({"ok": False, "problems": _problems(error)})
            raise

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples, one per line."""
        write_examples(formatter, self.examples)


class Commands(Command, click.Group):
    """Group of commands, with examples of its own."""


def write_examples(formatter: click.HelpFormatter, examples: tuple[str, ...]) -> None:
    """Write a section of command lines without wrapping."""
    if examples:
        with formatter.section("Examples"):
            for example in examples:
                formatter.write(f"{'':>{formatter.current_indent}}{example}\n")


class _Warnings(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        warn(record.getMessage())


def show_log() -> None:
    """Show the library's log messages on stderr as warnings."""
    log = logging.getLogger("kept")
    if not any(isinstance(handler, _Warnings) for handler in log.handlers):
        log.addHandler(_Warnings())


def path_from_here(path: str | Path) -> str:
    """Path as typed from here: relative if it is below the working folder."""
    whole = Path(path).absolute()
    here = Path.cwd()
    # do not resolve links: `best` is one, and its target is an internal path
    return str(whole.relative_to(here)) if whole.is_relative_to(here) else str(whole)


def command_for(verb: str, folder: Path, settings: Sequence[str] = ()) -> str:
    """Command line that applies a command to a run."""
    from kept.store.home import Home

    folder = folder.resolve()
    # the id if it is enough to find the run from here, else the path of its folder
    near = Home.find(Path.cwd()).runs.resolve() == folder.parent
    words = [program(), verb, folder.name if near else path_from_here(folder)]
    for setting in settings:
        words += ["--set", setting]
    return shlex.join(words)


F = TypeVar("F", bound=Callable[..., Any])


def run_argument(function: F) -> F:
    """`[RUN]`: the run to look at."""
    return click.argument("run", default="last")(function)


def json_option(function: F) -> F:
    """`--json`: print a JSON document."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")(
        function
    )


def quiet_option(function: F) -> F:
    """`-q`: show no progress."""
    return click.option(
        "-q", "--quiet", is_flag=True, help="Show no progress, only the answer and warnings."
    )(function)


def set_option(function: F) -> F:
    """`--set`: change a value of the spec for this run."""
    return click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="PATH=VALUE",
        help="Set a value of the spec for this run, by its path in the file. Repeatable.",
    )(function)


def no_cache_option(function: F) -> F:
    """`--no-cache`: do not use cached model replies."""
    return click.option(
        "--no-cache",
        is_flag=True,
        expose_value=False,
        callback=_without_cache,
        help="Ask models anew: neither read nor write the cache of replies.",
    )(function)


def _without_cache(context: click.Context, _: click.Parameter, given: bool) -> None:
    if given:
        from kept.models.roles import without_cache  # at use: help need not load it

        context.with_resource(without_cache())


def gain_option(function: F) -> F:
    """`--fail-if-no-gain`: exit with 1 if nothing beat the seed."""
    return click.option(
        "--fail-if-no-gain", is_flag=True, help="Exit with 1 when nothing beat the seed."
    )(function)


def workers_option(function: F) -> F:
    """`--workers`: number of concurrent rollouts."""
    return click.option(
        "--workers",
        type=click.IntRange(min=1),
        metavar="N",
        help="Rollouts in flight at once; by default what the spec says.",
    )(function)


def money_option(function: F) -> F:
    """`--max-usd`: limit of cost in USD."""
    return click.option(
        "--max-usd",
        type=click.FloatRange(min=0),
        metavar="USD",
        help="Stop before this is spent; by default what the spec says.",
    )(function)


def step_option(function: F) -> F:
    """`--step`: one step of the run."""
    return click.option(
        "--step", type=click.IntRange(min=0), metavar="N", help="Look at this step alone."
    )(function)


def _problems(error: KeptError | CutShortError) -> list[dict[str, Any]]:
    cause = error.cause if isinstance(error, CutShortError) else error
    if isinstance(cause, SpecError):
        return [_row(problem) for problem in cause.problems]
    message = cause.message if isinstance(cause, KeptError) else f"{type(cause).__name__}: {cause}"
    return [_row(Problem("", "", message, cause.hint if isinstance(cause, KeptError) else None))]


def _row(problem: Problem) -> dict[str, Any]:
    file, line = problem.place or (None, None)
    return {
        "file": file,
        "line": line,
        "flag": problem.where if file is None and problem.where else None,
        "path": problem.path or None,
        "problem": problem.message,
        "hint": problem.hint,
    }
