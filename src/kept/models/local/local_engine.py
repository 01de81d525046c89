"""llama.cpp on this machine: one set of weights, answering several requests at a time.

Blocking. `kept.models.local.local` keeps it off the event loop.
"""

import threading
import weakref
from pathlib import Path
from typing import Any

from kept.models.local.process import LlamaProcess, Stop
from kept.settings import processors


class Engine:
    """Weights in memory, with `slots` places for requests, of `context` tokens each.

    One llama.cpp of one thread for each processor, in a process of its own. Threads of one wait for
    one another at every step of every token, which on a busy machine is nearly all they do; two of
    them in one process take each other's table of tokens away at every request with a schema, which
    costs as much as half an answer.
    """

    def __init__(self, weights: Path, slots: int, context: int) -> None:
        count = min(slots, processors())
        # the first shares carry what does not divide
        self._shapes = [
            (weights, slots // count + (n < slots % count), context) for n in range(count)
        ]
        self._processes: list[LlamaProcess] = []
        self._lock = threading.Lock()
        self._starting = [threading.Lock() for _ in range(count)]
        self._calls = [0] * count
        # also when the interpreter ends
        weakref.finalize(self, _close, self._processes)
        try:
            self._processes += (LlamaProcess(*shape) for shape in self._shapes)
            for process in self._processes:
                process.wait_until_ready()
        except BaseException:
            _close(self._processes)
            raise

    def chat(self, body: dict[str, Any], stop: Stop) -> list[dict[str, Any]]:
        """What it streams in answer to a request of the OpenAI protocol, as far as it got.

        The key `schema` says what the answer is to look like. Raises `ValueError` for a request
        that it does not understand, and `RuntimeError` where llama.cpp fails.
        """
        with self._lock:
            at = min(range(len(self._calls)), key=lambda n: self._calls[n])
            self._calls[at] += 1
        try:
            return self._process(at).chat(body, stop)
        finally:
            with self._lock:
                self._calls[at] -= 1

    def _process(self, at: int) -> LlamaProcess:
        with self._starting[at]:
            if self._processes[at].gone:
                # whoever asked it was told; who asks now is answered
                self._processes[at].close()
                process = LlamaProcess(*self._shapes[at])
                try:
                    process.wait_until_ready()
                except BaseException:
                    process.close()
                    raise
                self._processes[at] = process
            return self._processes[at]


def _close(processes: list[LlamaProcess]) -> None:
    for process in processes:
        process.close_input()
    for process in processes:
        process.close()


_Key = tuple[Path, int, int]
_loaded: "weakref.WeakValueDictionary[_Key, Engine]" = weakref.WeakValueDictionary()
_loading = threading.Lock()


def engine_of(weights: Path, slots: int, context: int) -> Engine:
    """The engine for these weights: one for all who use it, gone with the last of them."""
    key = (weights, slots, context)
    with _loading:
        engine = _loaded.get(key)
        if engine is None:
            engine = _loaded[key] = Engine(weights, slots, context)
        return engine
