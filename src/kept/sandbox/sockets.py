"""Doors to other programs that stand in the file system, where no wall of the network is.

A named socket can be connected to by whoever sees its file, through a read-only one as well.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

_TABLE = Path("/proc/net/unix")
_FIELDS = 7
"""What stands before the name in a line of the table."""


def named_sockets() -> Iterator[Path]:
    """The files of all sockets that the kernel knows by name."""
    try:
        lines = _TABLE.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return
    fields = (line.split(None, _FIELDS) for line in lines)
    names = dict.fromkeys(row[_FIELDS] for row in fields if len(row) > _FIELDS)
    for name in names:
        # others have names that are no files
        if name.startswith("/") and _is_socket(name):
            yield Path(name)


def _is_socket(name: str) -> bool:
    try:
        return stat.S_ISSOCK(os.lstat(name).st_mode)
    except (OSError, ValueError):
        return False
