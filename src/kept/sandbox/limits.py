"""Limits as words of the shell that the command is handed to.

The shell has to be started anyway, so its `ulimit` costs nothing; a launcher of our own would cost
as much as a short command. Limits hold for each process, and are inherited.
"""

import resource
from collections.abc import Iterable
from math import ceil
from pathlib import Path
from shlex import quote

from kept.sandbox import orphan_search
from kept.sandbox.command import Command, Limits

_BLOCK = 512
"""POSIX counts the size of a file in these."""

_PROCESSORS = 64
"""A process with many threads uses more seconds than pass."""

FIRST_TO_GO = 1000
"""For whom a machine without memory ends first: a command, rather than Kept or a neighbour."""


def shell(
    command: Command, *, groups: Iterable[Path] = (), mark: str = "", count: bool = False
) -> list[str]:
    """The command, behind its limits and in its control groups, with the mark of its strays.

    Without a group the limit on processes is the user's, everything else of theirs included,
    unless the command is alone in a user namespace: only then may it be set, by `count`.
    """
    words = [f"echo $$ > {quote(str(group))}/cgroup.procs" for group in groups]
    words += [f"ulimit -m {orphan_search.limit(mark)}"] if mark else []
    words.append(f"echo {FIRST_TO_GO} > /proc/self/oom_score_adj")
    words += _words(command.limits, command.timeout)
    if count and (most := command.limits.processes) is not None:
        # bash and dash have different letters for it
        words.append(f"ulimit -u {most} || ulimit -p {most}")
    script = "; ".join(f"{{ {word}; }} 2>/dev/null" for word in words)
    return ["/bin/sh", "-c", f'{script}; exec /bin/sh -c "$0"', command.line]


def _words(limits: Limits, timeout: float) -> list[str]:
    cpu = _capped(limits.cpu_seconds or ceil(timeout) * _PROCESSORS, resource.RLIMIT_CPU)
    words = ["ulimit -c 0", f"ulimit -t {cpu}"]
    if limits.file_size is not None:
        words.append(f"ulimit -f {-(-_capped(limits.file_size, resource.RLIMIT_FSIZE) // _BLOCK)}")
    if limits.memory is not None:
        words.append(f"ulimit -v {_capped(limits.memory, resource.RLIMIT_AS) // 1024}")
    return words


def _capped(wanted: int, name: int) -> int:
    """What may be asked for: a limit can be lowered, not raised."""
    _, hard = resource.getrlimit(name)
    return wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
