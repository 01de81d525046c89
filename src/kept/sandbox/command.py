"""Values that describe a command: its limits, its view of the files, and its result."""

import signal
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

TIMEOUT = 300.0
"""Default seconds for a command."""

MAX_TEXT = 1024 * 1024
"""Default maximum of bytes kept of stdout, and of stderr."""

MIB = 1024 * 1024

Network = Literal["none", "loopback", "on"]
"""Network access; `loopback` reaches only what the command itself has started."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Resource limits of one command; None means no limit of ours."""

    cpu_seconds: int | None = None
    """CPU seconds of one process."""
    memory: int | None = None
    """Bytes of address space per process; with control groups also of all memory together."""
    file_size: int | None = 1024 * MIB
    """Bytes of one file."""
    tree: int = 1024 * MIB
    """Bytes written to the tree, to temporary folders, and to the output folder, each.

    A sandbox holds the tree and the temporary folders in memory.
    """
    processes: int | None = 512
    """Concurrent processes, threads included."""
    entries: int | None = None
    """Files and folders of the output folder; None is the default number."""


@dataclass(frozen=True, slots=True)
class View:
    """Files and network that a command sees.

    The tree is seen at its own path, with the candidate's files laid over it. What the command
    writes there is discarded with it.
    """

    tree: Path
    hidden: tuple[Path, ...] = ()
    """Files and folders that are hidden from the command."""
    writable: tuple[Path, ...] = ()
    """Files and folders outside the tree that it may really write to."""
    seen: tuple[Path, ...] = ()
    """Folders that it needs, even inside folders that are private in the sandbox."""
    readable: tuple[Path, ...] = ()
    """Files and folders that it may read, even if they are known to hold secrets."""
    network: Network = "none"
    bare: bool = False
    """True if the command sees nothing of the tree: its workspace holds all that it needs."""
    walls: bool = True
    """True to use bwrap; otherwise only the copy of the tree and the limits protect us."""


@dataclass(frozen=True, slots=True)
class Command:
    """A shell command, and how to run it."""

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
    """Maximum bytes kept of stdout, and of stderr; the last ones."""


@dataclass(frozen=True, slots=True)
class Exit:
    """Result of a command."""

    code: int
    """Exit status; the negated number of the signal that ended it, if one did."""
    stdout: str
    stderr: str
    timed_out: bool = False
    cut: bool = False
    """True if only the end of stdout was kept."""
    hidden: str = ""
    """Note that an error mentions a hidden path; empty if none does."""

    @property
    def ok(self) -> bool:
        """True if it ended by itself with exit status 0."""
        return self.code == 0 and not self.timed_out

    @property
    def signal(self) -> signal.Signals | None:
        """Signal that ended it; None if none did."""
        # a shell that waited for its child, and bwrap, report the signal as 128 + n
        number = -self.code if self.code < 0 else self.code - 128
        with suppress(ValueError):
            return signal.Signals(number)
        return None

    def __str__(self) -> str:
        """Summary in one line: exit status, last words, and a hidden path."""
        lines = self.stderr.strip().splitlines()
        said = f": {lines[-1].strip()[:300]}" if lines else ""
        said += f" ({self.hidden})" if self.hidden else ""
        if (number := self.signal) is not None:
            return f"killed by {number.name}{said}"
        return f"exit {self.code}{said}"

    def detail(self, size: int = 4000) -> str:
        """Last characters of its stderr."""
        return self.stderr[-size:]
