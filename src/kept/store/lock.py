"""One writer a run.

The lock is the kernel's, so it goes with the process that held it: a file left behind by a killed
run locks nobody out. It belongs to the open file, which a fork would share and so keep: a child of
an evaluator lets go of it at its first breath. A record lock, which no fork shares, would be lost
as soon as anybody in this process looked whether the run is being written.
"""

import fcntl
import os
import time
import weakref
from contextlib import suppress
from pathlib import Path

from kept.errors import JournalError, LockedError
from kept.store.candidate_files import unwritable


class Lock:
    """Held from construction to `release`."""

    def __init__(self, folder: Path, name: str = "lock", note: str = "") -> None:
        """A `note` is told to whoever is kept out."""
        self._path = folder / name
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            self._fd = os.open(self._path, flags, 0o600)
        except OSError as error:
            raise unwritable(folder, error) from error
        try:
            self._take(folder)
            try:
                os.ftruncate(self._fd, 0)
                os.pwrite(self._fd, f"{os.getpid()}\n{note}".encode(), 0)
            except OSError as error:
                raise unwritable(folder, error) from error
        except JournalError:
            self.release()
            raise
        _held.add(self)

    def _take(self, folder: Path) -> None:
        try:
            _take(self._fd)
        except BlockingIOError as error:
            pid, told = _read(self._fd)
            raise LockedError(
                f"run {folder.name} is being written by process {pid or 'unknown'}",
                hint="wait for it to end, or stop that process; then resume",
                pid=pid,
                note=told,
            ) from error
        except OSError as error:
            raise JournalError(
                f"cannot lock {self._path}: {error.strerror}",
                hint="its file system has no locks: point KEPT_HOME at a folder of a local disk",
            ) from error

    def release(self) -> None:
        """Let the next writer in."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def remove(self) -> None:
        """Let the next one in and leave no file behind: of a lock in a folder of others."""
        if self._fd < 0:
            return
        with suppress(OSError):
            # somebody may have removed it, and another one holds a new file of that name
            if os.path.samestat(self._path.stat(), os.fstat(self._fd)):
                self._path.unlink()
        self.release()

    @property
    def lost(self) -> bool:
        """Whether who held it before removed the file meanwhile, so that it keeps nobody out."""
        return os.fstat(self._fd).st_nlink == 0


_held: "weakref.WeakSet[Lock]" = weakref.WeakSet()


def _let_go() -> None:
    for lock in tuple(_held):
        lock.release()


os.register_at_fork(after_in_child=_let_go)


def _take(fd: int) -> None:
    """Lock; a reader that looks whether anyone writes holds it for an instant, so try again."""
    for wait in (0.005, 0.02, 0.05, 0.1):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(wait)
        else:
            return
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


def holder(folder: Path) -> int | None:
    """The pid that is writing a run now, None when nobody is."""
    try:
        fd = os.open(folder / "lock", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        # shared: only a writer refuses it, and nobody else who looks
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read(fd)[0]
    except OSError:
        return None  # a file system without locks, where nobody could write
    finally:
        os.close(fd)
    return None


def _read(fd: int) -> tuple[int, str]:
    """Who holds a lock, and its note; 0 where that does not stand there yet."""
    pid, _, note = os.pread(fd, 1000, 0).decode("utf-8", "replace").partition("\n")
    return (int(pid) if pid.isdigit() else 0), note
