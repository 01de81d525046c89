"""A process with llama.cpp in it, as seen from here."""

import itertools
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from queue import SimpleQueue
from typing import IO, Any

from kept.errors import SetupError
from kept.sandbox.session import start_alone
from kept.settings import child_environment

Stop = Callable[[], bool]
"""Whether an answer is no longer wanted; asked after every token."""

CLOSING = 5.0
"""Seconds that it has to go when it is told to."""

_WORKER = Path(__file__).with_name("local_worker.py")


class LlamaProcess:
    """Answers several requests at a time.

    Away from our terminal, whose Ctrl-C is meant for us; it ends when its input does, and so with
    us, however we end.
    """

    def __init__(self, weights: Path, slots: int, context: int) -> None:
        """Start it; `wait_until_ready` before it is asked."""
        self._weights = weights
        argv = [sys.executable, "-I", str(_WORKER), _packages()]
        argv += [str(weights.absolute()), str(slots), str(context)]
        self._process = start_alone(
            lambda: subprocess.Popen(
                argv,
                env=child_environment({}, ("LD_LIBRARY_PATH",)),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._asks: IO[bytes] = self._process.stdin
        self._answers: IO[bytes] = self._process.stdout
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._waiting: dict[int, SimpleQueue[dict[str, Any] | None]] = {}
        self._listening = False
        self.gone = False

    @property
    def pid(self) -> int:
        """By which the system knows it."""
        return self._process.pid

    def wait_until_ready(self) -> None:
        """Raises `SetupError` for weights that are none."""
        first = json.loads(self._answers.readline() or "{}")
        if "cannot" in first:
            self.close()
            raise SetupError(
                f"llama.cpp cannot use {self._weights}: {first['cannot']}",
                hint="`kept models pull` fetches it anew",
            )
        self._listening = True
        threading.Thread(target=self._listen, name="kept-llama", daemon=True).start()

    def chat(self, body: dict[str, Any], stop: Stop) -> list[dict[str, Any]]:
        """What it streams in answer to a request, as far as it got.

        Raises `ValueError` for a request that it does not understand, and `RuntimeError` where it
        fails, or ends.
        """
        answers: SimpleQueue[dict[str, Any] | None] = SimpleQueue()
        with self._lock:
            number = next(self._numbers)
            self._waiting[number] = answers
        self._ask(id=number, body=body)
        chunks: list[dict[str, Any]] = []
        stopped = False
        while (said := answers.get()) is not None and "chunk" in said:
            chunks.append(said["chunk"])
            if not stopped and stop():
                stopped = True
                self._ask(id=number, stop=True)
        if said is None:
            raise RuntimeError(f"llama.cpp {self._ended()}")
        if said["end"] != "ok":
            raise (ValueError if said["end"] == "refused" else RuntimeError)(said["message"])
        return chunks

    def close(self) -> None:
        """End it, in the middle of an answer if need be."""
        with self._lock:
            self._close_input()
        try:
            self._process.wait(CLOSING)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if not self._listening:
            self._answers.close()

    def _ask(self, **what: object) -> None:
        line = json.dumps(what).encode() + b"\n"
        with self._lock:
            try:
                self._asks.write(line)
                self._asks.flush()
            except (OSError, ValueError):
                # it is gone, or was closed: who waits is told so by who listens
                self._close_input()
            if self.gone:
                self._tell_all_gone()

    def _listen(self) -> None:
        for line in self._answers:
            said = json.loads(line)
            with self._lock:
                if "chunk" in said:
                    answers = self._waiting.get(said["id"])
                else:
                    answers = self._waiting.pop(said["id"], None)
            if answers is not None:
                answers.put(said)
        with self._lock:
            self.gone = True
            self._tell_all_gone()
        self._answers.close()

    def _tell_all_gone(self) -> None:
        while self._waiting:
            self._waiting.popitem()[1].put(None)

    def _close_input(self) -> None:
        try:
            self._asks.close()
        except OSError:
            return  # what was still to be written is for nobody

    def _ended(self) -> str:
        try:
            code = self._process.wait(CLOSING)
        except subprocess.TimeoutExpired:
            return "says no more"
        if code >= 0:
            return f"ended with exit code {code}"
        return f"was ended by {signal.Signals(-code).name}"


def _packages() -> str:
    """The folder that llama.cpp is found in."""
    found = find_spec("xllamacpp")
    if found is None or found.origin is None:
        raise SetupError(
            "models on this machine need the package `xllamacpp`, which is not installed",
            hint="pip install 'kept[local]'",
        )
    return str(Path(found.origin).parent.parent)
