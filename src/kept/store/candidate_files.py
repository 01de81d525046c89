"""Safe file writing, and the atomic `best/` folder of the best candidate.

Files below `.kept/` are readable only by their owner; elsewhere they follow the umask. The argument
`below` is a folder named by a user or a spec, which may be reached through links. Below it no link
is followed, since others may have placed it.

`best/` is a link to the files of one candidate. Moving the link is atomic. So readers find the
old or the new best as a whole, even after a kill.
"""

import errno
import os
import shutil
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from kept.core.artifact import Candidate, is_safe_path
from kept.core.event import Event, StepClosed
from kept.core.ports import Journal
from kept.core.state import State
from kept.errors import JournalError, RunError
from kept.settings import kept_home

SPACE = "free some space or fix the permissions, then resume: what was written is intact"
"""Hint for errors of writing."""

SMALLEST_DATABASE = 64 << 10
"""Free bytes that SQLite needs to open a database and its journal."""


def write_files(
    folder: Path,
    candidate: Candidate,
    modes: Mapping[str, int] | None = None,
    below: Path | None = None,
) -> None:
    """Write a candidate's texts as files below a folder, with their mode bits if given."""
    # bytes, so that line endings stay as they are
    texts = candidate.texts.items()
    files = {path: text.encode("utf-8", "surrogateescape") for path, text in texts}
    write_below(folder, files, below)
    for path, mode in (modes or {}).items():
        if path in candidate.texts:
            (folder / path).chmod(mode & 0o700 if is_private(folder) else mode)


def write_below(folder: Path, files: Mapping[str, bytes], below: Path | None = None) -> None:
    """Write files below a folder, which is made if missing; raises for a path that leaves it."""
    below = below or folder
    with open_folder(folder, below):
        pass  # makes the folder, even if there are no files
    for path, data in files.items():
        if not is_safe_path(path):
            raise RunError(f"`{path}` is not a path below the folder it is to be written to")
        write_file(folder / path, data, below=below)


def is_private(path: Path) -> bool:
    """True below `.kept`, below the `KEPT_HOME` folder and in the folder of a run."""
    path, home = path.absolute(), kept_home()
    if ".kept" in path.parts or (home is not None and path.is_relative_to(home.absolute())):
        return True
    # `kept.optimize(home=...)` may name any folder
    return any((above / "journal.jsonl").exists() for above in path.parents)


def make_folder(folder: Path) -> None:
    """Make a folder and its missing parents."""
    if not folder.is_dir():
        make_folder(folder.parent)
        try:
            folder.mkdir(0o700 if is_private(folder) else 0o777, exist_ok=True)
        except FileExistsError as error:  # a file, or a link to nothing
            words = os.strerror(errno.ENOTDIR)
            raise NotADirectoryError(errno.ENOTDIR, words, str(folder)) from error


@contextmanager
def open_folder(folder: Path, below: Path) -> Generator[int]:
    """Open a folder as a descriptor, made if missing; raises for links below `below`.

    Each part is opened relative to its parent's descriptor, so a link placed meanwhile has no
    effect either.
    """
    make_folder(below)
    fd = os.open(below, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        at = below
        for part in folder.relative_to(below).parts:
            at = at / part
            with suppress(FileExistsError):
                os.mkdir(part, 0o700 if is_private(at) else 0o777, dir_fd=fd)
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            with _naming(at):
                inner = os.open(part, flags, dir_fd=fd)
            os.close(fd)
            fd = inner
        yield fd
    finally:
        os.close(fd)


def write_file(path: Path, data: bytes, mode: str = "wb", below: Path | None = None) -> None:
    """Write or, with the mode `ab`, append to a file."""
    with open_folder(path.parent, below or path.parent) as folder:
        _write(folder, path, data, mode)


def write_whole(path: Path, data: bytes, below: Path | None = None) -> None:
    """Write a file atomically: whole or not at all."""
    # a fixed name: leftovers of a killed process are replaced by the next write
    fresh = path.with_name(f".{path.name}.new")
    with open_folder(path.parent, below or path.parent) as folder:
        if path.is_symlink():
            raise link_error(path)
        try:
            with suppress(FileNotFoundError):
                os.unlink(fresh.name, dir_fd=folder)
            _write(folder, fresh, data, "xb")
            os.replace(fresh.name, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(fresh.name, dir_fd=folder)


def _write(folder: int, path: Path, data: bytes, mode: str) -> None:
    """Write a file in an open folder."""
    bits = 0o600 if is_private(path) else 0o666

    def opener(name: str, flags: int) -> int:
        return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, bits, dir_fd=folder)

    with _naming(path), open(path.name, mode, opener=opener) as file:
        file.write(data)


def named_place(path: Path, base: Path) -> Path:
    """Folder down to which links in a path are trusted: `base`, else the path itself."""
    inside = path.is_relative_to(base) and ".." not in path.relative_to(base).parts
    return base if inside else path


def link_in(path: Path, below: Path) -> Path | None:
    """Find the first link between a folder and a path, the path included; None without one."""
    if not path.is_relative_to(below):
        return path if path.is_symlink() else None
    ways = (path, *path.parents)
    links = [one for one in ways if one != below and one.is_relative_to(below) and one.is_symlink()]
    return links[-1] if links else None


def link_error(path: Path) -> OSError:
    """Error for a path that is a link."""
    return OSError(errno.ELOOP, "it is a link, and nothing is written through links", str(path))


@contextmanager
def _naming(path: Path) -> Generator[None]:
    """Replace an error that names a part of a path by one with the whole path and the reason."""
    try:
        yield
    except OSError as error:
        if path.is_symlink():
            raise link_error(path) from error
        raise OSError(error.errno, error.strerror, str(path)) from error


def make_private(path: Path) -> None:
    """Make an empty file that only its owner may read, for libraries that only take a path."""
    os.close(open_private(path, os.O_CREAT | os.O_WRONLY))


def unwritable(path: Path, error: OSError) -> JournalError:
    """Error for a folder of Kept that cannot be written to."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    hint = SPACE if full else "make the folder writable, or point KEPT_HOME at one that is"
    return JournalError(f"cannot write to {path}: {error.strerror}", hint=hint)


def database_trouble(path: Path, error: Exception, otherwise: str) -> tuple[str, str]:
    """Return message and hint for an SQLite error; SQLite says `disk I/O error` for a full disk.

    `error` may be a `UnicodeDecodeError`: Python raises it if a name in a
    damaged file is not UTF-8.
    """
    name = getattr(error, "sqlite_errorname", "")
    full = name == "SQLITE_FULL"
    if name.startswith(("SQLITE_IOERR", "SQLITE_CANTOPEN")):
        with suppress(OSError):
            disk = os.statvfs(path.parent)
            full = disk.f_bavail * disk.f_frsize < SMALLEST_DATABASE
    return (os.strerror(errno.ENOSPC), SPACE) if full else (str(error), otherwise)


def open_private(path: str | Path, flags: int) -> int:
    """Open a file that only its owner may read; an `opener` for `open`."""
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def write_private(path: Path, data: bytes) -> None:
    """Replace one of Kept's own files atomically."""
    fresh = path.with_name(f".{path.name}.new")
    with open(fresh, "wb", opener=open_private) as file:
        file.write(data)
    fresh.replace(path)


def set_aside(path: Path, damaged: bytes) -> None:
    """Append unreadable bytes to `NAME.torn` and sync it, before the caller cuts them off."""
    with open(path.with_name(f"{path.name}.torn"), "ab", opener=open_private) as file:
        file.write(damaged)
        file.flush()
        os.fsync(file.fileno())


class BestFolder:
    """Sink that updates `best/` to the best candidate of the state."""

    def __init__(
        self, folder: Path, journal: Journal, modes: Mapping[str, int] | None = None
    ) -> None:
        self._folder = folder
        self._journal = journal
        self._modes = modes

    def on_event(self, event: Event, state: State) -> None:
        """Update `best/` for a new best, and at each start: a killed session may not have."""
        moved = isinstance(event, StepClosed) and event.verdict.best
        if moved or event.kind in ("run_started", "run_resumed"):
            swap_best(self._folder, self._journal.load(state.best), self._modes)


def swap_best(folder: Path, candidate: Candidate, modes: Mapping[str, int] | None = None) -> None:
    """Point `best/` at the files of this candidate."""
    shelf = folder / ".best"
    target = shelf / candidate.id
    link = folder / "best"
    if link.is_symlink() and link.readlink() == Path(".best") / candidate.id:
        return
    try:
        # anything under that name is the leftover of a process killed while writing it
        shutil.rmtree(target, ignore_errors=True)
        write_files(target, candidate, modes)
        fresh = folder / ".best.link"
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(Path(".best") / candidate.id)
        if link.is_dir() and not link.is_symlink():
            shutil.rmtree(link)  # the run was copied by a tool that follows links
        fresh.replace(link)
        for old in shelf.iterdir():
            if old.name != candidate.id:
                shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        raise JournalError(f"cannot write {link}: {error.strerror}", hint=SPACE) from error
