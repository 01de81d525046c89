"""Client of a process that runs llama.cpp."""

import itertools
import json
import select
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from queue import SimpleQueue
from typing import IO, Any

from kept.errors import SetupError
from kept.sandbox.process import how_ended, last_words, start_alone
from kept.settings import child_environment, install_command

Stop = Callable[[], bool]
"""True if an answer is no longer wanted; checked after every token."""

LOADING = 600.0
"""Seconds for loading the weights."""

CLOSING = 5.0
"""Seconds that the process has to exit when asked to."""

_WORKER = Path(__file__).with_name("worker_main.py")

_Answers = SimpleQueue[dict[str, Any] | None]
"""Lines for one request; None once the process has ended."""


class LlamaProcess:
    """Answers several requests at a time.

    Runs in its own session, since Ctrl-C in our terminal is meant for us. Once it has loaded its
    weights it ends when its stdin closes, and thus with us, however we end.
    """

    def __init__(self, weights: Path, slots: int, context: int) -> None:
        """Start the process; call `wait_until_ready` before the first request."""
        self._weights = weights
        found = find_spec("xllamacpp")
        if found is None or found.origin is None:
            raise _missing("is not installed")
        packages = Path(found.origin).parent.parent
        argv = [sys.executable, "-I", str(_WORKER), str(packages)]
        argv += [str(weights.absolute()), str(slots), str(context)]
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 # closed with the process
        try:
            self._process = start_alone(
                lambda: subprocess.Popen(
                    argv,
                    # a GPU build finds its libraries this way
                    env=child_environment({}, ("LD_LIBRARY_PATH",)),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=self._errors,
                    start_new_session=True,
                )
            )
        except OSError as error:
            self._errors.close()
            raise RuntimeError(f"llama.cpp cannot be started: {error}") from error
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._asks: IO[bytes] = self._process.stdin
        self._answers: IO[bytes] = self._process.stdout
        # `_writing` may be held as long as the process does not read. `_lock` is never held for
        # long, but a finalizer may take it at any time in a thread that holds it already: hence
        # reentrant.
        self._writing = threading.Lock()
        self._lock = threading.RLock()
        self._numbers = itertools.count()
        self._waiting: dict[int, _Answers] = {}
        self._listening = False
        self.gone = False

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def busy(self) -> bool:
        """True if a request is in progress."""
        return bool(self._waiting)

    def wait_until_ready(self) -> None:
        """Wait for the weights; raise `SetupError` for invalid ones, `RuntimeError` on failure."""
        first: dict[str, Any] = {}
        if select.select([self._answers], [], [], LOADING)[0]:
            with suppress(ValueError):
                first = json.loads(self._answers.readline())
        if first.get("missing"):
            self.close()
            raise _missing(f"does not work: {first['missing']}")
        if "cannot" in first:
            self.close()
            raise SetupError(
                f"llama.cpp cannot use {self._weights}: {first['cannot']}",
                hint="`kept models pull` fetches it anew",
            )
        if "ready" not in first:
            ended = self._ended()
            self.close()
            raise RuntimeError(f"llama.cpp did not load {self._weights}: it {ended}")
        threading.Thread(target=self._listen, name="kept-llama", daemon=True).start()
        self._listening = True

    def chat(self, body: dict[str, Any], stop: Stop) -> list[dict[str, Any]]:
        """Return the chunks streamed in reply to a request, until its end or `stop`.

        Raises `ValueError` for a request that it does not understand, and `RuntimeError` if it
        fails or ends.
        """
        answers: _Answers = SimpleQueue()
        with self._lock:
            number = next(self._numbers)
            self._waiting[number] = answers
            if self.gone:
                answers.put(None)
        try:
            self._ask(id=number, body=body)
            return self._hear(number, answers, stop)
        finally:
            with self._lock:
                self._waiting.pop(number, None)

    def close_input(self) -> None:
        """Make the process end, in the middle of an answer if need be."""
        if not self._writing.acquire(timeout=CLOSING):
            # another thread's write is blocked, as the process does not read
            self._process.kill()
            self._writing.acquire()
        try:
            with suppress(OSError):  # the process is gone, and unsent requests with it
                self._asks.close()
        finally:
            self._writing.release()

    def close(self) -> None:
        """End the process and release its resources."""
        self.close_input()
        try:
            self._process.wait(CLOSING)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._tell_gone()
        if not self._listening:
            self._answers.close()
        self._errors.close()

    def _hear(self, number: int, answers: _Answers, stop: Stop) -> list[dict[str, Any]]:
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

    def _ask(self, **what: object) -> None:
        line = json.dumps(what).encode() + b"\n"
        with self._writing, suppress(OSError, ValueError):
            # the process ended or was closed: `_tell_gone` reports that to the waiting callers
            self._asks.write(line)
            self._asks.flush()

    def _listen(self) -> None:
        try:
            # an incomplete line, from a process killed while it wrote, is its last
            with suppress(ValueError):
                for line in self._answers:
                    said = json.loads(line)
                    with self._lock:
                        answers = self._waiting.get(said["id"])
                    if answers is not None:
                        answers.put(said)
        finally:
            self._tell_gone()
            self._answers.close()

    def _tell_gone(self) -> None:
        with self._lock:
            self.gone = True
            for answers in self._waiting.values():
                answers.put(None)

    def _ended(self) -> str:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(CLOSING)
        said = ""
        with suppress(OSError, ValueError):  # closed meanwhile
            said = last_words(self._errors).rpartition("\n")[2]
        how = how_ended(self._process.poll())
        return f"{how}: {said}" if said else how


def _missing(what: str) -> SetupError:
    return SetupError(
        f"models on this machine need the package `xllamacpp`, which {what}",
        hint=install_command("local"),
    )
