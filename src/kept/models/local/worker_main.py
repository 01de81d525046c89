"""llama.cpp in its own process, with JSON lines as its protocol.

`local.process` runs this file by its path. It imports nothing of Kept, so that it starts fast.
Input: `{"id", "body"}`, and `{"id", "stop"}` for an answer that is no longer wanted. Output: once
`{"ready"}`, `{"cannot"}` or `{"missing"}`. Then, for every request, `{"id", "chunk"}` for each
streamed piece, and finally `{"id", "end"}`, with a message if it failed.
"""

import json
import os
import secrets
import sys
import threading
from importlib import import_module
from typing import Any, TextIO

BATCH = 256
"""Tokens of a prompt that are processed in one go; a stop waits at most that long."""


class Teller:
    """Writes JSON lines, from any thread."""

    def __init__(self, answers: TextIO) -> None:
        self._answers = answers
        self._writing = threading.Lock()

    def tell(self, **what: object) -> None:
        """Write a line."""
        with self._writing:
            self._answers.write(json.dumps(what) + "\n")
            self._answers.flush()


class Worker:
    """One single-threaded llama.cpp."""

    def __init__(self, llama: Any, server: Any, teller: Teller) -> None:  # noqa: ANN401 # they have no types
        self._llama = llama
        self._server = server
        self._tell = teller.tell
        self._unwanted: dict[int, threading.Event] = {}
        """Stop event of every answer that has not ended."""

    def hear(self, line: bytes) -> None:
        """Begin an answer, or stop one.

        Never writes anything itself: the client may not read before all its requests are sent.
        """
        said = json.loads(line)
        number = said["id"]
        if "stop" not in said:
            self._unwanted[number] = threading.Event()
            work = (number, said["body"])
            threading.Thread(target=self._answer, args=work, daemon=True).start()
        elif number in self._unwanted:
            self._unwanted[number].set()

    def _answer(self, number: int, body: dict[str, Any]) -> None:
        unwanted = self._unwanted[number]

        def hear(chunk: dict[str, Any]) -> bool:
            self._tell(id=number, chunk=chunk)
            return unwanted.is_set()

        try:
            self._server.handle_chat_completions(self._request(body), hear)
        except ValueError as error:
            self._tell(id=number, end="refused", message=str(error))
        except Exception as error:  # noqa: BLE001 # sent to the client
            self._tell(id=number, end="failed", message=f"{error}" or type(error).__name__)
        else:
            self._tell(id=number, end="ok")
        del self._unwanted[number]

    def _request(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the request in llama.cpp's format.

        llama.cpp's own `response_format` lets a model write blanks and fences around its answer. A
        small model then goes on with blanks until it is cut off.
        """
        schema = body.pop("schema", None)
        if schema is not None:
            tight = {**schema, "x-guidance": {"whitespace_flexible": False}}
            body["grammar"] = self._llama.json_schema_to_grammar(tight)
        # a progress chunk after each batch of the prompt, so that a stop takes effect there too
        told = {"stream": True, "stream_options": {"include_usage": True}}
        return {**body, **told, "return_progress": True}


def load(llama: Any, weights: str, slots: int, context: int) -> Any:  # noqa: ANN401 # they have no types
    """Create a llama.cpp with `slots` places for requests, of `context` tokens each."""
    params = llama.CommonParams()
    params.model.path = weights
    params.n_parallel = slots
    params.n_ctx = slots * context
    params.n_batch = params.n_ubatch = BATCH
    for threads in (params.cpuparams, params.cpuparams_batch):
        threads.n_threads = 1
        threads.poll = 0
    # otherwise it caches prompts, up to 8 GiB of them
    params.cache_ram_mib = 0
    params.verbosity = -1
    params.warmup = False
    # it always listens on loopback; a random key keeps all others out
    params.api_keys = [secrets.token_hex(16)]
    return llama.Server(params)


def serve(teller: Teller, packages: str, weights: str, slots: int, context: int) -> None:
    """Answer requests until stdin is closed."""
    # where Kept found the package, which need not be on this Python's path
    sys.path.insert(0, packages)
    try:
        llama = import_module("xllamacpp")
    except ImportError as error:
        teller.tell(missing=str(error) or "it cannot be imported")
        return
    finally:
        sys.path.remove(packages)
    try:
        worker = Worker(llama, load(llama, weights, slots, context), teller)
    except (RuntimeError, ValueError) as error:
        teller.tell(cannot=str(error))
        return
    teller.tell(ready=True)
    for line in sys.stdin.buffer:
        if not line.endswith(b"\n"):
            return  # an incomplete line: the client was killed
        worker.hear(line)


def main(packages: str, weights: str, slots: str, context: str) -> None:
    """Run the worker and end with `os._exit`: with llama.cpp loaded, normal exits fail."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    # output of llama.cpp itself goes to stderr, since stdout carries the answers
    os.dup2(2, 1)
    code = 1
    try:
        serve(Teller(answers), packages, weights, int(slots), int(context))
        code = 0
    except Exception as error:  # noqa: BLE001 # its last words
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
    finally:
        os._exit(code)


if __name__ == "__main__":
    main(*sys.argv[1:])
