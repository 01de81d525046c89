"""Lock that allows one writer per run.

It is a kernel lock (`flock`), so it ends with its process: the file of a killed run blocks no other
writer. The lock belongs to the open file, which a fork shares; so each child process releases its
copy right after the fork. A POSIX record lock is not shared by forks, but this process would
lose it by opening and closing the file to check for a writer.
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
    """Exclusive lock, held from construction to `release`."""

    def __init__(self, folder: Path, name: str = "lock", note: str = "") -> None:
        """Acquire the lock and store `note` in it; raises `LockedError` with the holder's note."""
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
        """Release the lock."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def remove(self) -> None:
        """Release the lock and remove its file, for a lock in a folder that is not Kept's."""
        if self._fd < 0:
            return
        with suppress(OSError):
            # the file may have been removed, and another process may hold a new one of that name
            if os.path.samestat(self._path.stat(), os.fstat(self._fd)):
                self._path.unlink()
        self.release()

    @property
    def lost(self) -> bool:
        """True if the previous holder removed the file meanwhile: the lock then has no effect."""
        return os.fstat(self._fd).st_nlink == 0


_held: "weakref.WeakSet[Lock]" = weakref.WeakSet()


def _let_go() -> None:
    for lock in tuple(_held):
        lock.release()


os.register_at_fork(after_in_child=_let_go)


def _take(fd: int) -> None:
    """Lock a file; retries, since a reader's call of `holder` locks it for an instant."""
    for wait in (0.005, 0.02, 0.05, 0.1):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(wait)
        else:
            return
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


def holder(folder: Path) -> int | None:
    """Pid of the process that is writing a run now (0 if not known yet); None without one."""
    try:
        fd = os.open(folder / "lock", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        # shared: blocked only by a writer, not by other readers
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read(fd)[0]
    except OSError:
        return None  # a file system without locks, where no run can be written
    finally:
        os.close(fd)
    return None


def _read(fd: int) -> tuple[int, str]:
    """Pid and note of the lock's holder; pid 0 if they are not written yet."""
    pid, _, note = os.pread(fd, 1000, 0).decode("utf-8", "replace").partition("\n")
    return (int(pid) if pid.isdigit() else 0), note
