"""A finished run written once more, as slowly as a test wants: what a page of it has to follow."""

import shutil
from pathlib import Path

from kept.core.event import StepClosed
from kept.store import codec
from kept.store.lock import Lock


class Replayed:
    """A copy of a run that has only begun; it counts as running while its lock is held."""

    def __init__(self, whole: Path, home: Path) -> None:
        self.folder = home / "runs" / whole.name
        shutil.copytree(whole, self.folder, symlinks=True)
        # what says how it ended is written when it has
        for name in ("steps.idx", "run_completion.json"):
            (self.folder / name).unlink(missing_ok=True)
        self._spine, self._rollouts = self.folder / "journal.jsonl", self.folder / "rollouts.jsonl"
        self._lines = self._spine.read_bytes().splitlines(keepends=True)
        self._all = self._rollouts.read_bytes()
        self._spine.write_bytes(self._lines.pop(0))
        self._rollouts.write_bytes(b"")
        self._lock: Lock | None = Lock(self.folder)

    def close_step(self) -> bool:
        """Write up to the next verdict, or to the end; False where that was all."""
        while self._lines:
            line = self._lines.pop(0)
            event = codec.decode_event(line)
            if isinstance(event, StepClosed):
                self._rollouts.write_bytes(self._all[: event.rollouts[1]])
            with self._spine.open("ab") as file:
                file.write(line)
            if isinstance(event, StepClosed):
                return True
        return False

    def open_step(self) -> None:
        """Write up to the next reply of a proposer, and nothing of what is rolled out."""
        while self._lines and b'"kind":"step_closed"' not in self._lines[0]:
            with self._spine.open("ab") as file:
                file.write(self._lines.pop(0))

    def call(self, scope: bytes) -> None:
        """Write what was rolled out up to the next call of a scope."""
        at = self._rollouts.stat().st_size
        rest = self._all[at:].splitlines(keepends=True)
        found = next(n for n, line in enumerate(rest) if scope in line)
        with self._rollouts.open("ab") as file:
            file.write(b"".join(rest[: found + 1]))

    def kill(self) -> None:
        """Whoever wrote it is gone."""
        assert self._lock is not None
        self._lock.release()

    def resume(self) -> None:
        """Somebody goes on with it."""
        self._lock = Lock(self.folder)
