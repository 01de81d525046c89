"""Several files changed as one: all of them, or none.

New contents are written and synced beside the old ones first; what then remains is one rename a
file. A rename that fails takes the earlier ones back.
"""

import glob
import os
import stat
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from kept.errors import SetupError


def replace_all(files: Mapping[Path, bytes]) -> None:
    """Give files new contents; raises `SetupError` with everything as it was when it cannot."""
    # through links: the file is to change, not the link to it
    meant = {path.resolve(): data for path, data in files.items()}
    fresh: dict[Path, Path] = {}
    old: dict[Path, Path] = {}
    try:
        for path, data in meant.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            _sweep(path)
            fresh[path] = _beside(path, data)
            if path.exists():
                old[path] = _beside(path, path.read_bytes())
        _rename_all(fresh, old)
    except OSError as error:
        message = f"cannot change {error.filename}: {error.strerror}"
        raise SetupError(f"{message}; nothing was changed") from error
    finally:
        for left in (*fresh.values(), *old.values()):
            left.unlink(missing_ok=True)


def _rename_all(fresh: Mapping[Path, Path], old: Mapping[Path, Path]) -> None:
    done: list[Path] = []
    try:
        for path, new in fresh.items():
            new.replace(path)
            done.append(path)
    except OSError:
        for path in done:
            if path in old:
                old[path].replace(path)
            else:
                path.unlink()
        raise
    for folder in {path.parent for path in fresh}:
        _sync_folder(folder)


def _sweep(path: Path) -> None:
    """Remove what an adoption that was killed left beside a file."""
    for left in path.parent.glob(f".{glob.escape(path.name)}.????????.kept"):
        left.unlink(missing_ok=True)


def _beside(path: Path, data: bytes) -> Path:
    """A file with this content in the same folder, with the mode and owner of the one there."""
    fd, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".kept", dir=path.parent)
    with os.fdopen(fd, "wb") as file:
        if path.exists():
            there = path.stat()
            with suppress(PermissionError):
                os.fchown(fd, there.st_uid, there.st_gid)
            os.fchmod(fd, stat.S_IMODE(there.st_mode))
        else:
            os.fchmod(fd, 0o644)
        file.write(data)
        file.flush()
        os.fsync(fd)
    return Path(name)


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
