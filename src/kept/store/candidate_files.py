"""Safe file writing, and the atomic `best/` folder of the best candidate.

Files below `.kept/` are readable only by their owner; elsewhere they follow the umask. Writing
never follows a link. `below` is a folder named by a person or a spec, and may be reached through
links. Below it, links may have been placed by others.

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
"""What to do where nothing can be written."""

SMALLEST_DATABASE = 64 << 10
"""Bytes that SQLite needs to open a file with its journal beside it."""


def write_files(
    folder: Path,
    candidate: Candidate,
    modes: Mapping[str, int] | None = None,
    below: Path | None = None,
) -> None:
    """A candidate's texts as files below a folder, with their mode bits where they have some."""
    # bytes, so that line endings stay as they are
    texts = candidate.texts.items()
    files = {path: text.encode("utf-8", "surrogateescape") for path, text in texts}
    write_below(folder, files, below)
    for path, mode in (modes or {}).items():
        if path in candidate.texts:
            (folder / path).chmod(mode & 0o700 if is_private(folder) else mode)


def write_below(folder: Path, files: Mapping[str, bytes], below: Path | None = None) -> None:
    """Files below a folder, which is made; refuses a path that leaves it."""
    below = below or folder
    with open_folder(folder, below):
        pass  # made, also where there are no files
    for path, data in files.items():
        if not is_safe_path(path):
            raise RunError(f"`{path}` is not a path below the folder it is to be written to")
        write_file(folder / path, data, below=below)


def is_private(path: Path) -> bool:
    """True below `.kept`, below the folder that `KEPT_HOME` names, and in the folder of a run."""
    path, home = path.absolute(), kept_home()
    if ".kept" in path.parts or (home is not None and path.is_relative_to(home.absolute())):
        return True
    # `kept.optimize(home=...)` may name any folder
    return any((above / "journal.jsonl").exists() for above in path.parents)


def make_folder(folder: Path) -> None:
    """Make a folder and those above it that are missing."""
    if not folder.is_dir():
        make_folder(folder.parent)
        try:
            folder.mkdir(0o700 if is_private(folder) else 0o777, exist_ok=True)
        except FileExistsError as error:  # a file, or a link to nothing
            words = os.strerror(errno.ENOTDIR)
            raise NotADirectoryError(errno.ENOTDIR, words, str(folder)) from error


@contextmanager
def open_folder(folder: Path, below: Path) -> Generator[int]:
    """Open a folder by its descriptor, made where it is missing; refuses links below `below`.

    Each step is taken from the folder before it, so that a link that is put there meanwhile leads
    nowhere either.
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
    """Write a file, whole or not at all."""
    # one name for all: what a kill leaves is written over by the next to come
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
    """Write a file of a folder that is open."""
    bits = 0o600 if is_private(path) else 0o666

    def opener(name: str, flags: int) -> int:
        return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, bits, dir_fd=folder)

    with _naming(path), open(path.name, mode, opener=opener) as file:
        file.write(data)


def named_place(path: Path, base: Path) -> Path:
    """The folder up to which a path is a person's own: a project, or what lies outside of it."""
    inside = path.is_relative_to(base) and ".." not in path.relative_to(base).parts
    return base if inside else path


def link_in(path: Path, below: Path) -> Path | None:
    """The first link on the way from a folder to a path, the path included; None without one."""
    if not path.is_relative_to(below):
        return path if path.is_symlink() else None
    ways = (path, *path.parents)
    links = [one for one in ways if one != below and one.is_relative_to(below) and one.is_symlink()]
    return links[-1] if links else None


def link_error(path: Path) -> OSError:
    """That a path is a link."""
    return OSError(errno.ELOOP, "it is a link, and nothing is written through links", str(path))


@contextmanager
def _naming(path: Path) -> Generator[None]:
    """Name the whole path where something cannot be opened by a part of it, and why."""
    try:
        yield
    except OSError as error:
        if path.is_symlink():
            raise link_error(path) from error
        raise OSError(error.errno, error.strerror, str(path)) from error


def make_private(path: Path) -> None:
    """Make an empty file that only its owner may read, for those who only take a path."""
    os.close(open_private(path, os.O_CREAT | os.O_WRONLY))


def unwritable(path: Path, error: OSError) -> JournalError:
    """That nothing can be written to a folder of Kept's own."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    hint = SPACE if full else "make the folder writable, or point KEPT_HOME at one that is"
    return JournalError(f"cannot write to {path}: {error.strerror}", hint=hint)


def database_trouble(path: Path, error: Exception, otherwise: str) -> tuple[str, str]:
    """Words and hint for an error of SQLite, which says `disk I/O error` where a disk is full.

    Where a damaged file has a name that is no UTF-8, Python raises a `UnicodeDecodeError`.
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
    """Replace a file of Kept's own, whole or not at all."""
    fresh = path.with_name(f".{path.name}.new")
    with open(fresh, "wb", opener=open_private) as file:
        file.write(data)
    fresh.replace(path)


def set_aside(path: Path, damaged: bytes) -> None:
    """Append bytes that cannot be read to `NAME.torn`, on disk before they are cut off."""
    with open(path.with_name(f"{path.name}.torn"), "ab", opener=open_private) as file:
        file.write(damaged)
        file.flush()
        os.fsync(file.fileno())


class BestFolder:
    """A sink that has `best/` follow the state."""

    def __init__(
        self, folder: Path, journal: Journal, modes: Mapping[str, int] | None = None
    ) -> None:
        self._folder = folder
        self._journal = journal
        self._modes = modes

    def on_event(self, event: Event, state: State) -> None:
        """Move `best/` when the best moved, or when an earlier sitting died before it could."""
        moved = isinstance(event, StepClosed) and event.verdict.best
        if moved or event.kind in ("run_started", "run_resumed"):
            swap_best(self._folder, self._journal.load(state.best), self._modes)


def swap_best(folder: Path, candidate: Candidate, modes: Mapping[str, int] | None = None) -> None:
    """Have `best/` hold this candidate's files."""
    shelf = folder / ".best"
    target = shelf / candidate.id
    link = folder / "best"
    if link.is_symlink() and link.readlink() == Path(".best") / candidate.id:
        return
    try:
        # whatever stands under that name was left by a process killed while writing it
        shutil.rmtree(target, ignore_errors=True)
        write_files(target, candidate, modes)
        fresh = folder / ".best.link"
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(Path(".best") / candidate.id)
        if link.is_dir() and not link.is_symlink():
            shutil.rmtree(link)  # the run was copied by something that follows links
        fresh.replace(link)
        for old in shelf.iterdir():
            if old.name != candidate.id:
                shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        raise JournalError(f"cannot write {link}: {error.strerror}", hint=SPACE) from error
