"""A command, what it may use, what it sees, and how it ended. Values only."""

import signal
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

TIMEOUT = 300.0
"""Seconds a command gets when nobody says otherwise."""

MAX_TEXT = 1024 * 1024
"""Bytes of stdout, and of stderr, that are kept when nobody says otherwise."""

MIB = 1024 * 1024

Network = Literal["none", "loopback", "on"]
"""`loopback` reaches what the command itself has started, and nothing else."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one command may use up; None is whatever the machine has."""

    cpu_seconds: int | None = None
    """Of one process."""
    memory: int | None = None
    """Bytes of address space of one process; and of memory of all, where groups can be made."""
    file_size: int | None = 1024 * MIB
    """Bytes of one file."""
    tree: int = 1024 * MIB
    """Bytes written to the tree and to temporary folders, which a sandbox holds in memory, and to
    the output folder; each."""
    processes: int | None = 512
    """At once, threads included."""
    entries: int | None = None
    """Files and folders of the output folder; None is the usual number."""


@dataclass(frozen=True, slots=True)
class View:
    """What a command sees of the files, and of the network.

    The tree is seen at its own path, with the candidate's files laid over it; what the command
    writes there is gone with it.
    """

    tree: Path
    hidden: tuple[Path, ...] = ()
    """Files and folders that are not there for the command."""
    writable: tuple[Path, ...] = ()
    """Files and folders outside the tree that it may really write to."""
    seen: tuple[Path, ...] = ()
    """Folders that it needs, also where they lie in one that is private between walls."""
    readable: tuple[Path, ...] = ()
    """Files and folders that it may read, also where they are known to hold secrets."""
    network: Network = "none"
    bare: bool = False
    """Whether the command has nothing of the tree: all that it needs lies in its workspace."""
    walls: bool = True
    """Whether to use bwrap; without, only the copy of the tree and the limits are left."""


@dataclass(frozen=True, slots=True)
class Command:
    """A line for the shell, and how it is to be run."""

    line: str
    cwd: Path
    timeout: float = TIMEOUT
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    limits: Limits = field(default_factory=Limits)
    view: View | None = None
    """None: it sees what we see, and writes where we can."""
    passed_on: tuple[str, ...] = ()
    """Further variables of our environment that it may see."""
    most_text: int = MAX_TEXT
    """Bytes of stdout, and of stderr, that are kept; the last ones."""


@dataclass(frozen=True, slots=True)
class Exit:
    """What became of a command."""

    code: int
    """Exit status; the negated number of the signal that ended it, if one did."""
    stdout: str
    stderr: str
    timed_out: bool = False
    cut: bool = False
    """Whether only the end of stdout was kept."""
    hidden: str = ""
    """That it names something hidden from it in an error, in words; empty where it does not."""

    @property
    def ok(self) -> bool:
        """Whether it ended by itself and without complaint."""
        return self.code == 0 and not self.timed_out

    @property
    def signal(self) -> signal.Signals | None:
        """The signal that ended it."""
        # a shell that waited for its child, and bwrap, report the signal as 128 + n
        number = -self.code if self.code < 0 else self.code - 128
        with suppress(ValueError):
            return signal.Signals(number)
        return None

    def __str__(self) -> str:
        """Its end in one line: exit status, last words, and what was hidden from it."""
        lines = self.stderr.strip().splitlines()
        said = f": {lines[-1].strip()[:300]}" if lines else ""
        said += f" ({self.hidden})" if self.hidden else ""
        if (number := self.signal) is not None:
            return f"killed by {number.name}{said}"
        return f"exit {self.code}{said}"

    def detail(self, size: int = 4000) -> str:
        """The end of what it said on stderr."""
        return self.stderr[-size:]
