"""Shell command as runner.

    KEPT_CANDIDATE    folder with the candidate's files
    KEPT_CASE         JSON file with the case; absent in a run without cases
    KEPT_OUTPUT       folder for the files that the scorer sees

A task may name one exit code that means an infrastructure failure: it is retried, and no
candidate is blamed. It must be named in the task, because a running candidate could use it too.

The execution is journalled as one call. A run killed between running and scoring scores again
without running again.
"""

import re
import signal
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from kept.core.artifact import Candidate
from kept.core.case import Case
from kept.core.ports import Scope
from kept.core.rollout import Failure, Job, Rollout, TraceItem
from kept.core.text import count
from kept.sandbox.command import TIMEOUT, Command, Exit
from kept.sandbox.workspace import MAX_OUTPUT, Scratch
from kept.spec.components import BuildContext, Component, Needs
from kept.spec.validate import Seconds, SpecModel, Text, no_nul

_LIMITS = (signal.SIGXCPU, signal.SIGXFSZ)
"""Signals for exceeded limits of CPU time and file size."""

_NOT_RUN = (126, 127)
"""Exit codes of a shell if the command is not executable or does not exist."""

# env puts quotes around the name, in some locales curly ones
_NOT_THERE = re.compile(r"(?:/bin/sh|(?:/usr/bin/)?env): (?:(?:line )?\d+: )?\W?(.+?)\W?: ")
"""Error of our own shell about a missing program; a candidate's shell has another name."""


class CommandRunner:
    """Runner that runs a command for each candidate and case, in its own scratch folder."""

    def __init__(
        self,
        command: Command,
        scratch: Scratch,
        max_output: int = MAX_OUTPUT,
        retry_exit: int | None = None,
    ) -> None:
        self._command = command
        self._scratch = scratch
        self._max_output = max_output
        self._retry_exit = retry_exit

    async def run(
        self, job: Job, candidate: Candidate, case: Case, scope: Scope
    ) -> Rollout | Failure:
        """Run the command once."""
        request = {"command": self._command.line, "job": list(job)}
        return await scope.call(request, Rollout, lambda: self._execute(candidate, case))

    async def close(self) -> None:
        """Remove the scratch folder."""
        self._scratch.close()

    async def _execute(self, candidate: Candidate, case: Case) -> Rollout | Failure:
        try:
            with self._scratch.workspace(candidate, case) as workspace:
                ended = await workspace.run(self._command)
                failure = ended if isinstance(ended, Failure) else self._fault(ended)
                if failure is not None:
                    return failure
                output = workspace.read_output(self._max_output)
        except OSError as error:
            message = f"cannot use the scratch folder: {error.strerror}"
            return Failure("limit", "infrastructure", message)
        assert isinstance(ended, Exit)
        if isinstance(output, Failure):
            return output
        said = (("stdout", ended.stdout), ("stderr", ended.stderr))
        left = (("info", f"left out of the output: {what}") for what in output.skipped)
        trace = tuple(TraceItem(role, text) for role, text in (*said, *left) if text)
        return Rollout(output=ended.stdout, files=output.files, trace=trace)

    def _fault(self, ended: Exit) -> Failure | None:
        """Failure of an ended command, with the blame; None if it succeeded."""
        if ended.ok:
            return None
        if ended.timed_out:
            message = f"no end after {count(self._command.timeout, 'second')}"
            return Failure("timeout", "candidate", message, ended.detail())
        if ended.code in _NOT_RUN and self._names_what_is_missing(ended):
            message = f"the shell cannot run `{self._command.line}` ({ended})"
            return Failure("harness", "infrastructure", message, ended.detail())
        if self._retry_exit is not None and ended.code == self._retry_exit:
            message = f"the command asks to be tried again later ({ended})"
            return Failure("network", "infrastructure", message, ended.detail())
        if ended.signal in _LIMITS:
            return Failure("limit", "candidate", str(ended), ended.detail())
        return Failure("crash", "candidate", str(ended), ended.detail())

    def _names_what_is_missing(self, ended: Exit) -> bool:
        """True if the command itself cannot be run.

        A candidate that is a script also exits with 127 if its last line calls a missing program.
        """
        said = _NOT_THERE.match(ended.stderr.strip().rpartition("\n")[2])
        return said is not None and said[1] in self._command.line


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _env(variables: dict[str, str]) -> dict[str, str]:
    odd = [f"`{name}`" for name in variables if not _NAME.fullmatch(name)]
    ours = [f"`{name}`" for name in variables if name.startswith("KEPT_")]
    told = [f"{name} is not the name of a variable" for name in odd]
    told += [f"{name} is not yours to set: names with KEPT_ are Kept's" for name in ours]
    if told:
        raise ValueError("; ".join(told))
    return variables


class CommandRunnerSpec(SpecModel):
    """Command that executes a candidate."""

    type: Literal["command"] = "command"
    command: Text
    cwd: Text = "."
    timeout_seconds: Seconds = TIMEOUT
    env: Annotated[dict[str, Annotated[str, AfterValidator(no_nul)]], AfterValidator(_env)] = Field(
        default_factory=dict[str, str]
    )
    retry_exit: Annotated[int, Field(ge=1, le=255)] | None = None
    """Exit code by which the command blames an outage, not the candidate."""


class CommandRunnerComponent(Component[CommandRunnerSpec, CommandRunner]):
    """Command that executes a candidate."""

    Spec = CommandRunnerSpec

    def build(self, spec: CommandRunnerSpec, context: BuildContext) -> CommandRunner:
        """Build the runner with the command in its sandbox."""
        folder = context.folder / spec.cwd
        command = Command(spec.command, folder, spec.timeout_seconds, spec.env)
        held = context.sandbox.runner(command)
        return CommandRunner(held, context.scratch, context.max_output, spec.retry_exit)

    def needs(self, spec: CommandRunnerSpec) -> Needs:
        """Return the command and its time limit."""
        return Needs(
            commands=(spec.command,), folders=(spec.cwd,), worst_seconds=spec.timeout_seconds
        )
