"""llama.cpp in a process of its own, asked and answering in lines of JSON.

`local_process` runs this file by its path. It imports nothing of Kept, so that it is there at once.
Asked: `{"id", "body"}`, and `{"id", "stop"}` for an answer that is no longer wanted. Told: once
`{"ready"}`, `{"cannot"}` or `{"missing"}`; then for every request `{"id", "chunk"}` as often as it
streams, and at last `{"id", "end"}`, with what went wrong.
"""

import json
import os
import secrets
import sys
import threading
from importlib import import_module
from typing import Any, TextIO

BATCH = 256
"""Tokens of a prompt that are read in one go, and so the longest that a stop waits."""


class Teller:
    """Says lines, from any thread."""

    def __init__(self, answers: TextIO) -> None:
        self._answers = answers
        self._writing = threading.Lock()

    def tell(self, **what: object) -> None:
        """Say a line."""
        with self._writing:
            self._answers.write(json.dumps(what) + "\n")
            self._answers.flush()


class Worker:
    """One llama.cpp of one thread."""

    def __init__(self, llama: Any, server: Any, teller: Teller) -> None:  # noqa: ANN401 # they have no types
        self._llama = llama
        self._server = server
        self._tell = teller.tell
        self._unwanted: dict[int, threading.Event] = {}
        """Whether it is unwanted, for every answer that has not ended."""

    def hear(self, line: bytes) -> None:
        """Begin an answer, or end one.

        It never says anything itself: whoever asks may not be listening before all is asked.
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
        except Exception as error:  # noqa: BLE001 # told to whoever asked
            self._tell(id=number, end="failed", message=f"{error}" or type(error).__name__)
        else:
            self._tell(id=number, end="ok")
        del self._unwanted[number]

    def _request(self, body: dict[str, Any]) -> dict[str, Any]:
        """The request in llama.cpp's words.

        Its own `response_format` lets a model write blanks and fences round its answer, and a small
        one then goes on with blanks until it is cut.
        """
        schema = body.pop("schema", None)
        if schema is not None:
            tight = {**schema, "x-guidance": {"whitespace_flexible": False}}
            body["grammar"] = self._llama.json_schema_to_grammar(tight)
        # a word after each batch of the prompt, so that a stop is heard there too
        told = {"stream": True, "stream_options": {"include_usage": True}}
        return {**body, **told, "return_progress": True}


def load(llama: Any, weights: str, slots: int, context: int) -> Any:  # noqa: ANN401 # they have no types
    """A llama.cpp with `slots` places for requests, of `context` tokens each."""
    params = llama.CommonParams()
    params.model.path = weights
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
    return llama.Server(params)


def serve(teller: Teller, packages: str, weights: str, slots: int, context: int) -> None:
    """Answer until nobody can ask any more."""
    # where Kept found it, which need not be where this Python would
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
            return  # whoever asked was killed
        worker.hear(line)


def main(packages: str, weights: str, slots: str, context: str) -> None:
    """With llama.cpp at work no interpreter ends well, so this one does not."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    # what llama.cpp itself prints is no answer
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
