"""A model that runs on this machine, on llama.cpp: no key, no network, no price.

With the same seed it gives the same answer again.
"""

import asyncio
import json
import threading
import weakref
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from kept.core.model import Finish, ModelReply, ModelRequest
from kept.core.rollout import Failure, FailureKind, Usage
from kept.engine.threads import Threads
from kept.errors import SetupError
from kept.models.config import SHAPES, ModelConfig
from kept.models.local.local_engine import Engine, engine_of
from kept.models.weights import known, needed

SLOTS = 4
"""Requests that are answered side by side."""

CONTEXT = 2048
"""Tokens of one request, prompt and answer; what the smallest of our models was made for."""


def local_model(name: str) -> "LocalModel":
    """The model that a spec calls `local/NAME`; its weights must be here."""
    return LocalModel(f"local/{known(name).name}", needed(name))


def make(config: ModelConfig) -> "LocalModel":
    """The model of a config; a `SetupError` where its weights are not here."""
    known_ones = (name for name in SHAPES if name != "effort")  # it does not think first
    said = {name: value for name in known_ones if (value := getattr(config, name)) is not None}
    return LocalModel(f"local/{known(config.model).name}", needed(config.model), said=said)


class LocalModel:
    """Implements `kept.core.ports.Model`; loads its weights when it is first asked."""

    def __init__(
        self,
        name: str,
        weights: Path,
        *,
        slots: int = SLOTS,
        context: int = CONTEXT,
        said: Mapping[str, Any] | None = None,
    ) -> None:
        """What is `said` shapes replies to requests that do not say."""
        self.name = name
        self._said = said or {}
        self._weights = weights
        self._slots = slots
        self._context = context
        self._threads = Threads(slots, "kept-model")
        weakref.finalize(self, self._threads.close)
        self._engine: Engine | None = None

    async def complete(self, request: ModelRequest) -> ModelReply | Failure:
        """One reply. When this is cancelled, it waits until the engine has let go."""
        for what, present in (("tools", request.tools), ("images", _has_images(request))):
            if present:
                message = f"{self.name} cannot be given {what}"
                return Failure("harness", "infrastructure", message)
        open_ones = {n: v for n, v in self._said.items() if getattr(request, n) is None}
        call = _Call(replace(request, **open_ones), asyncio.get_running_loop())
        try:
            chunks = await self._threads.call(self._answer, call)
        except asyncio.CancelledError:
            call.unwanted.set()
            if call.begun.is_set():
                await call.ended
            raise
        except SetupError as error:
            return Failure("harness", "infrastructure", str(error))
        except ValueError as error:
            message = f"{self.name} does not understand the request: {error}"
            return Failure("harness", "infrastructure", message)
        except RuntimeError as error:
            return Failure("server", "infrastructure", f"{self.name} failed: {error}")
        reply = _reply(self.name, chunks)
        if request.schema and isinstance(reply, ModelReply) and not _may_be_json(reply):
            # llama.cpp does not say so when it drops a schema
            message = f"{self.name} does not understand the schema of the request"
            return Failure("harness", "infrastructure", message, reply.text)
        return reply

    def _answer(self, call: "_Call") -> list[dict[str, Any]]:
        call.begun.set()
        try:
            if call.unwanted.is_set():
                return []
            if self._engine is None:
                self._engine = engine_of(self._weights, self._slots, self._context)
            return self._engine.chat(_body(call.request), call.unwanted.is_set)
        finally:
            call.tell_ended()


class _Call:
    """A request on its way, as seen from both threads."""

    def __init__(self, request: ModelRequest, loop: asyncio.AbstractEventLoop) -> None:
        self.request = request
        self.unwanted = threading.Event()
        self.begun = threading.Event()
        self.ended: asyncio.Future[None] = loop.create_future()
        self._loop = loop

    def tell_ended(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._settle)
        except RuntimeError:
            return  # the loop was closed meanwhile: nobody waits any more

    def _settle(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)


def _may_be_json(reply: ModelReply) -> bool:
    """Whether it is JSON, or the beginning of some where it was cut."""
    if reply.finish == "length":
        return reply.text[:1] in tuple('{["-0123456789tfn') or not reply.text
    try:
        json.loads(reply.text)
    except ValueError:
        return False
    return True


def _has_images(request: ModelRequest) -> bool:
    return any(message.images for message in request.messages)


def _body(request: ModelRequest) -> dict[str, Any]:
    """The request in llama.cpp's words, which are OpenAI's."""
    said = [{"role": message.role, "content": message.text} for message in request.messages]
    body: dict[str, Any] = {"messages": said}
    given = {
        "temperature": request.temperature,
        "top_p": request.top_p,
        "max_tokens": request.max_tokens,
        "seed": request.seed,
        "stop": list(request.stop) or None,
    }
    body |= {name: value for name, value in given.items() if value is not None}
    if request.schema:
        body["schema"] = dict(request.schema)
    return body


_KINDS: Mapping[str, FailureKind] = {"exceed_context_size_error": "context"}


def _reply(name: str, chunks: list[dict[str, Any]]) -> ModelReply | Failure:
    pieces: list[str] = []
    usage: dict[str, Any] = {}
    finish = ""
    for chunk in chunks:
        if "error" in chunk:
            return _failure(name, chunk["error"])
        usage = chunk.get("usage") or usage
        for choice in chunk["choices"]:
            pieces.append(choice["delta"].get("content") or "")
            finish = choice["finish_reason"] or finish
    if not finish:
        return Failure("server", "infrastructure", f"{name} was cut off")
    return ModelReply("".join(pieces), _usage(usage), _finish(finish))


def _finish(said: str) -> Finish:
    return "length" if said == "length" else "stop"


def _usage(said: Mapping[str, Any]) -> Usage:
    details: Mapping[str, int] = said.get("prompt_tokens_details") or {}
    cached = details.get("cached_tokens", 0)
    return Usage(1, said.get("prompt_tokens", 0), said.get("completion_tokens", 0), cached)


def _failure(name: str, error: Mapping[str, Any]) -> Failure:
    kind = _KINDS.get(error.get("type", ""))
    message = f"{name}: {error.get('message', 'unknown error')}"
    if kind is not None:
        return Failure(kind, "candidate", message)
    refused = error.get("code", 500) < 500
    return Failure("harness" if refused else "server", "infrastructure", message, json.dumps(error))
