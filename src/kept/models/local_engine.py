"""llama.cpp in this process: one set of weights, answering several requests at a time.

Blocking. `kept.models.local` keeps it off the event loop.
"""

import atexit
import secrets
import threading
import weakref
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from kept.errors import SetupError
from kept.settings import processors

Stop = Callable[[], bool]
"""Whether an answer is no longer wanted; asked after every token."""

BATCH = 256
"""Tokens of a prompt that are read in one go, and so the longest that a stop waits."""

CLOSING = 5.0
"""Seconds that the end of the process waits for the answers that it cuts."""


class Engine:
    """Weights in memory, with `slots` places for requests, of `context` tokens each.

    One llama.cpp of one thread for each processor. Threads of one llama.cpp wait for one another at
    every step of every token, which on a busy machine is nearly all they do: with two of them,
    a fifth of the requests a second was measured beside other work.
    """

    def __init__(self, weights: Path, slots: int, context: int) -> None:
        count = min(slots, processors())
        # the first shares carry what does not divide
        shares = [slots // count + (n < slots % count) for n in range(count)]
        self._servers = [_server(weights, share, context) for share in shares]
        self._busy = threading.Condition()
        self._calls = [0] * count
        self._closing = False
        _close_at_exit(self)

    def chat(self, body: dict[str, Any], stop: Stop) -> list[dict[str, Any]]:
        """What it streams in answer to a request of the OpenAI protocol, as far as it got.

        Raises ValueError for a request that it does not understand.
        """
        chunks: list[dict[str, Any]] = []

        def hear(chunk: dict[str, Any]) -> bool:
            chunks.append(chunk)
            return self._closing or stop()

        with self._busy:
            if self._closing:
                return chunks
            at = min(range(len(self._calls)), key=lambda n: self._calls[n])
            self._calls[at] += 1
        try:
            # a word after each batch of the prompt, so that a stop is heard there too
            told = {"stream": True, "stream_options": {"include_usage": True}}
            asked = {**body, **told, "return_progress": True}
            self._servers[at].handle_chat_completions(asked, hear)
        finally:
            with self._busy:
                self._calls[at] -= 1
                self._busy.notify_all()
        return chunks

    def close(self) -> None:
        """Cut what is being answered: llama.cpp must not be at work when the interpreter ends."""
        with self._busy:
            self._closing = True
            if self._busy.wait_for(lambda: not any(self._calls), CLOSING):
                self._servers.clear()


def _server(weights: Path, slots: int, context: int) -> Any:  # noqa: ANN401 # it has no types
    llama = _llama()
    params = llama.CommonParams()
    params.model.path = str(weights)
    params.n_parallel = slots
    params.n_ctx = slots * context
    params.n_batch = params.n_ubatch = BATCH
    for threads in (params.cpuparams, params.cpuparams_batch):
        threads.n_threads = 1
        threads.poll = 0
    # else it keeps what it has read, up to 8 GiB of it
    params.cache_ram_mib = 0
    params.verbosity = -1
    params.warmup = False
    # it listens on loopback whether one wants it or not; nobody else is to be let in
    params.api_keys = [secrets.token_hex(16)]
    try:
        return llama.Server(params)
    except (RuntimeError, ValueError) as error:
        raise SetupError(
            f"llama.cpp cannot use {weights}: {error}", hint="`kept models pull` fetches it anew"
        ) from error


def grammar_of(schema: Mapping[str, object]) -> str:
    """What an answer must look like, for the key `grammar` of a request.

    llama.cpp's own `response_format` lets a model write blanks and fences round its answer, and a
    small one then goes on with blanks until it is cut.
    """
    tight = {**schema, "x-guidance": {"whitespace_flexible": False}}
    return _llama().json_schema_to_grammar(tight)


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


def _close_at_exit(engine: Engine) -> None:
    known = weakref.ref(engine)

    def close() -> None:
        left = known()
        if left is not None:
            left.close()

    atexit.register(close)
    weakref.finalize(engine, atexit.unregister, close).atexit = False


def _llama() -> Any:  # noqa: ANN401 # it has no types
    try:
        # by name, since it has neither types nor stubs
        return cast("Any", import_module("xllamacpp"))
    except ImportError as error:
        raise SetupError(
            "models in this process need the package `xllamacpp`, which is not installed",
            hint="pip install 'kept[local]'",
        ) from error
