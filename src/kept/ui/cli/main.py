"""Entry point of `kept`: command table, lazy imports, streams, garbage collection.

The table has all that `kept --help` needs, so no command is imported for it. Commands are
imported on use, and errors are shown as messages.

Garbage collection is off while a command imports, and skips the imported modules later. Scanning
them takes a twelfth of the start time. During a run it takes 30 ms or more each time, in which no
reply is read and no request is sent.

stdout and stderr accept any text, and readers that close the pipe.
"""

import codecs
import errno
import gc
import io
import os
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NoReturn, TextIO, cast

import click

from kept._version import __version__
from kept.errors import KeptError
from kept.ui.cli._command import COULD_NOT_RUN, exit_code_of, write_examples

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


Section = Literal["Improve", "Measure", "Look", "Manage"]
SECTIONS: tuple[Section, ...] = ("Improve", "Measure", "Look", "Manage")


class Entry(NamedTuple):
    """Command table entry: section, name and module."""

    section: Section
    name: str
    module: str
    """Module below `kept.ui.cli` that has the command as an attribute."""
    summary: str
    """First sentence of the command's own help; a test compares them."""
    attribute: str = ""
    """Name of the attribute; by default the command's name."""


COMMANDS = {
    entry.name: entry
    for entry in (
        Entry(
            "Improve", "optimize", "optimize", "Improve what SPEC names, and keep what is better"
        ),
        Entry("Improve", "init", "init", "Write a small task that runs at once, to be changed"),
        Entry("Improve", "train", "train", "Train a skill on cases, and keep what is better"),
        Entry("Improve", "agent", "agent", "Have a task done by a manager and its workers"),
        Entry("Improve", "refine", "refine", "Run a finished task again, and keep what is better"),
        Entry("Improve", "resume", "resume", "Go on with a run that stopped"),
        Entry("Improve", "adopt", "adopt", "Change the source files to the best of a run"),
        Entry(
            "Improve",
            "demo",
            "demo",
            "Watch a run without a key, on a model that is on this machine",
        ),
        Entry(
            "Measure", "check", "check", "Say what a run of SPEC would do, and the most it can cost"
        ),
        Entry(
            "Measure", "compare", "compare", "Say whether B is better than A for cases like these"
        ),
        Entry(
            "Measure",
            "eval",
            "eval",
            "Measure what SPEC names on all its cases, and change nothing",
            "evaluate",
        ),
        Entry("Measure", "test", "test", "Test the agent of an agent.yaml on its cases"),
        Entry("Look", "runs", "runs", "List the runs of this project"),
        Entry("Look", "show", "show", "Show what a run did, step by step"),
        Entry("Look", "diff", "diff", "Show the change from seed to best"),
        Entry("Look", "report", "show", "Print the report of a run"),
        Entry("Look", "view", "view", "Look at runs in a browser, live and after"),
        Entry(
            "Manage",
            "experiment",
            "experiment",
            "Keep tasks together that go on from one another",
        ),
        Entry("Manage", "models", "models", "Manage the models that run on this machine"),
        Entry("Manage", "prompts", "prompts", "Look at what models are told, and copy it out"),
        Entry(
            "Manage",
            "doctor",
            "doctor",
            "Check Python, sandbox and models; or verify the files of one run",
        ),
    )
}


_STARTING = 200_000
"""Garbage collection threshold at the start, in objects; a command creates some 100,000."""
_RUNNING = 7_000
"""Threshold during a run, in objects: most are freed without a collection."""

_FEW = 1_000
"""Number of objects that some Python versions freeze by themselves."""


@contextmanager
def settled() -> Generator[None]:
    """Collect garbage during a run, but exclude the objects that exist at its beginning."""
    before = gc.get_threshold()
    # if another program has frozen objects, do not unfreeze them
    ours = gc.get_freeze_count() < _FEW
    if ours:
        gc.freeze()
    gc.set_threshold(_RUNNING)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        if ours:
            gc.unfreeze()


STDERR = 2


def make_streams_robust() -> None:
    """Replace `sys.stdout` and `sys.stderr` with streams that accept any text and any reader.

    `kept runs | head` and `kept optimize … 2>&1 | head` end with the exit code of the command's
    own work: once the reader is gone, output is discarded. The same holds if a stream is closed
    from the start (`kept optimize … >&-`).
    """
    codecs.register_error("kept", _escape)
    _open_closed_descriptors()
    sys.stdout = _robust(sys.stdout)
    sys.stderr = _robust(sys.stderr)


def _open_closed_descriptors() -> None:
    """Point closed descriptors at /dev/null, or a file of a run would get the number of stderr."""
    for fd in range(STDERR + 1):
        try:
            os.fstat(fd)
        except OSError:
            # opens the lowest free number, which is `fd`
            os.open(os.devnull, os.O_RDWR)


def _robust(stream: TextIO | None) -> TextIO:
    if stream is None:  # closed when Python started
        return Path(os.devnull).open("w", encoding="utf-8")
    # tests and notebooks replace the streams by objects without a pipe
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    stream.reconfigure(errors="kept")
    binary = cast("TextIO", stream).buffer
    if type(getattr(binary, "raw", binary)) is not io.FileIO:
        return cast("TextIO", stream)
    return io.TextIOWrapper(
        io.BufferedWriter(_Output(stream.fileno())),
        encoding=stream.encoding,
        errors="kept",
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


class _Output(io.FileIO):
    """File descriptor that is redirected to /dev/null once writing to it fails."""

    def __init__(self, fd: int) -> None:
        super().__init__(fd, "wb", closefd=False)
        # a closed terminal fails with EIO, and isatty() is false by then
        self._is_terminal = self.isatty()

    def write(self, b: "ReadableBuffer", /) -> int:
        try:
            return super().write(b)
        except BlockingIOError:
            raise
        except OSError as error:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self.fileno())
            os.close(null)
            if self._may_lose(error):
                return super().write(b)
            raise KeptError(f"cannot write the output: {error.strerror}") from error

    def _may_lose(self, error: OSError) -> bool:
        """True if the reader is gone, or for stderr, whose notes are no result."""
        hung_up = self._is_terminal and error.errno == errno.EIO
        return isinstance(error, BrokenPipeError) or hung_up or self.fileno() == STDERR


def _escape(error: UnicodeError) -> tuple[str | bytes, int]:
    """Write bytes that were not UTF-8 when read unchanged, and escape everything else."""
    if isinstance(error, UnicodeEncodeError):
        odd = error.object[error.start : error.end]
        if all("\udc80" <= c <= "\udcff" for c in odd):
            return odd.encode("utf-8", "surrogateescape"), error.end
    return codecs.backslashreplace_errors(error)


EXAMPLES = ("kept demo", "kept optimize task.yaml", "kept report")


class LazyGroup(click.Group):
    """Group that knows its commands' names, and loads a command's module on use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All commands, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load a command from its module."""
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        module = import_module(f"kept.ui.cli.{entry.module}")
        command = getattr(module, entry.attribute or entry.name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write commands by section, from the table alone."""
        for section in SECTIONS:
            rows = [(e.name, e.summary) for e in COMMANDS.values() if e.section == section]
            if rows:
                with formatter.section(section):
                    formatter.write_dl(rows)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples."""
        write_examples(formatter, EXAMPLES)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; an unknown name raises an error that suggests a similar one."""
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
            sys.stdout.flush()
        except Exception as error:  # noqa: BLE001 # the last stop: no traceback reaches a person
            code = exit_code_of(error)
        sys.exit(code if isinstance(code, int) else 0)


def _guess(name: str) -> str:
    if name.endswith((".yaml", ".yml")):
        return f"; `kept optimize {name}` may be meant"
    # imported at use: only a mistyped command needs it
    import difflib

    near = difflib.get_close_matches(name, COMMANDS, n=1)
    return f"; `{near[0]}` may be meant" if near else ""


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
    """Entry point of the installed command."""
    gc.set_threshold(_STARTING)
    cli.main()
