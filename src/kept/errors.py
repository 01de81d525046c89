"""All exceptions of the package.

    KeptError               message, optional hint; the CLI prints it without a traceback
    ├── SpecError           a spec that cannot be read: every problem at once
    ├── SetupError          something outside the spec is missing: a tool, a key, a file
    ├── JournalError        the record of a run cannot be read or written
    │   └── LockedError     another process is writing this run
    └── RunError            a run stopped by an error; its journal is intact

An exception means that the run cannot go on. An error inside one rollout, score or proposal is a
`Failure` value in the journal, never an exception and never a number.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace


class KeptError(Exception):
    """Base of all errors that are shown to the user: a message and an optional hint."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n\nhint: {self.hint}" if self.hint else self.message


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem of a spec: its place, a message and a hint how to fix it."""

    where: str
    """`file:line`, or the flag it came from."""
    path: str
    """Key path inside the spec, `artifacts.include[0]`; empty for the whole file."""
    message: str
    hint: str | None = None

    @property
    def place(self) -> tuple[str, int] | None:
        """File and line of the problem; None if it came from a flag."""
        file, _, line = self.where.rpartition(":")
        return None if self.where.startswith("--") or not line.isdigit() else (file, int(line))

    def __str__(self) -> str:
        path = f" {self.path}:" if self.path else ""
        hint = f" (hint: {self.hint})" if self.hint else ""
        if self.hint and "\n" in self.hint:
            # on its own line: a hint meant to be copied must not end in our bracket
            hint = f"\n\nhint: {self.hint}"
        return f"{self.where}{path} {self.message}{hint}"


class SpecError(KeptError):
    """A spec with problems; holds all of them at once."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = tuple(problems)

    def by_flags(self, flags: Mapping[str, tuple[str, str]]) -> "SpecError":
        """Return the same problems; those of values set by flags name the flag and its value.

        `flags` maps the place that a problem is reported at, such as `--set KEY=VALUE`, to both.
        """
        return SpecError(
            [
                replace(one, where=flags[one.where][0], path=flags[one.where][1])
                if one.where in flags
                else one
                for one in self.problems
            ]
        )


class SetupError(KeptError):
    """Something outside the spec is missing."""


class JournalError(KeptError):
    """The record of a run cannot be read or written."""


class LockedError(JournalError):
    """Another process is writing this run."""

    def __init__(
        self, message: str, *, hint: str | None = None, pid: int = 0, note: str = ""
    ) -> None:
        super().__init__(message, hint=hint)
        self.pid = pid
        """0 if unknown."""
        self.note = note
        """Text that the other process wrote into its lock file."""


class RunError(KeptError):
    """A run that could not go on; its journal is intact and it can be resumed."""
