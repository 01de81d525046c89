"""The end of what a command says."""

import asyncio
import os

from kept.core.words import count
from kept.sandbox.command import MAX_TEXT

_CHUNK = 65536


class Tail:
    """The end of what is written into a pipe, read as it comes so that no writer has to wait."""

    __slots__ = ("_dropped", "_kept", "_loop", "_most", "_reader", "writer")

    def __init__(self, most: int = MAX_TEXT) -> None:
        self._most = most
        self._loop = asyncio.get_running_loop()
        self._kept = bytearray()
        self._dropped = 0
        self._reader, self.writer = os.pipe()
        os.set_blocking(self._reader, False)
        self._loop.add_reader(self._reader, self._read)

    def __enter__(self) -> "Tail":
        return self

    def __exit__(self, *error: object) -> None:
        """Take what is still in the pipe; a process that escaped its group may hold it open."""
        os.close(self.writer)
        for _ in range(self._most // _CHUNK + 1):
            if not self._read():
                break
        self._trim()
        self._loop.remove_reader(self._reader)
        os.close(self._reader)

    @property
    def cut(self) -> bool:
        """Whether the beginning was not kept."""
        return self._dropped > 0

    def text(self) -> str:
        """What was kept, and how much was not."""
        cut = f"… {count(self._dropped, 'byte')} left out …\n" if self._dropped else ""
        return cut + self._kept.decode("utf-8", "replace")

    def _read(self) -> bool:
        """Take one chunk; whether there was one."""
        try:
            chunk = os.read(self._reader, _CHUNK)
        except BlockingIOError:
            return False
        self._kept += chunk
        # trimmed now and then, not with every chunk
        if len(self._kept) > 2 * self._most:
            self._trim()
        return bool(chunk)

    def _trim(self) -> None:
        over = len(self._kept) - self._most
        if over > 0:
            self._dropped += over
            del self._kept[:over]
