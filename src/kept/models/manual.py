"""Model answered by hand through a folder: a person or an agent replies, no key needed.

Each request becomes `ID.prompt.md`; `ID.answer.md` holds the answer. The id is a hash of the
request, so an existing answer is used at once. A stopped run continues with all answers given
meanwhile, and equal requests are answered once.
"""

import asyncio
import hashlib
import json
import os
from collections import Counter
from pathlib import Path

import msgspec

from kept.core.llm import ModelReply, ModelRequest
from kept.core.rollout import Failure, Usage
from kept.models.providers import ModelConfig
from kept.store.candidate_files import write_file

POLL = 0.25
"""Seconds between two checks of the folder."""

SETTLED = 1.0
"""Seconds that an answer must stay unchanged: a writer may still be at work on the file."""


def make(config: ModelConfig) -> "HandoffModel":
    """Create the model of a config, whose model name is a folder."""
    return HandoffModel(config.folder / config.model, name=config.name)


class HandoffModel:
    """Implements `kept.core.ports.Model`."""

    def __init__(
        self,
        folder: Path,
        *,
        name: str = "handoff",
        timeout: float | None = None,
        settled: float = SETTLED,
    ) -> None:
        self.name = name
        self._folder = folder
        self._timeout = timeout
        self._settled = settled
        self._waiting: Counter[str] = Counter()

    async def complete(self, request: ModelRequest) -> ModelReply | Failure:
        """Return the answer as soon as it is there."""
        if request.tools:
            return Failure("harness", "infrastructure", f"{self.name} cannot be given tools")
        id_ = request_id(request)
        self._waiting[id_] += 1
        try:
            return await self._answered(id_, request)
        except OSError as error:
            message = f"cannot use the folder {self._folder}: {error.strerror}"
            return Failure("harness", "infrastructure", message)
        finally:
            self._waiting[id_] -= 1
            # the last waiter of equal requests removes the prompt
            if not self._waiting[id_]:
                self._put_away(id_)

    async def _answered(self, id_: str, request: ModelRequest) -> ModelReply | Failure:
        answer = self._folder / f"{id_}.answer.md"
        text = self._read(answer)
        if text is None:
            self._ask(id_, request)
        loop = asyncio.get_running_loop()
        start = loop.time()
        while text is None:
            if self._timeout is not None and loop.time() - start > self._timeout:
                message = f"nobody wrote {answer} within {self._timeout:g} s"
                return Failure("timeout", "infrastructure", message)
            await asyncio.sleep(POLL)
            text = self._read(answer)
        try:
            return ModelReply(text.decode().removesuffix("\n"), Usage(calls=1))
        except UnicodeDecodeError:
            return Failure("parse", "infrastructure", f"{answer} is not UTF-8 text")

    def _read(self, answer: Path) -> bytes | None:
        """Read an answer; None while it is missing, empty or perhaps incomplete."""
        try:
            with answer.open("rb") as file:
                before = os.fstat(file.fileno())
                text = file.read()
                after = os.fstat(file.fileno())
        except FileNotFoundError:
            return None
        # a change between the two checks means that a writer is at work
        still = (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns)
        age = _now(self._folder) - after.st_mtime
        return text if text.strip() and still and age >= self._settled else None

    def _ask(self, id_: str, request: ModelRequest) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        images = [image for message in request.messages for image in message.images]
        names: list[str] = []
        for number, image in enumerate(images, 1):
            names.append(f"{id_}.{number}.{image.media_type.rpartition('/')[2]}")
            _write(self._folder / names[-1], image.data)
        _write(self._folder / f"{id_}.prompt.md", _page(id_, request, names).encode())

    def _put_away(self, id_: str) -> None:
        """Remove the prompt, so that the folder shows only open requests."""
        for path in self._folder.glob(f"{id_}.*"):
            if path.name != f"{id_}.answer.md":
                path.unlink(missing_ok=True)


def request_id(request: ModelRequest) -> str:
    """Id of a request: the same for equal ones, in every process."""
    text = json.dumps(msgspec.to_builtins(request), sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _now(folder: Path) -> float:
    """Current time by the clock of the folder's file system, which may be on another machine.

    Taken from the modification time of a file that is written there.
    """
    mark = folder / ".now"
    write_file(mark, b"now\n")
    return mark.stat().st_mtime


def _write(path: Path, data: bytes) -> None:
    """Write a file atomically, so that a watcher never sees half of a prompt."""
    new = path.with_name(f".{path.name}.{os.getpid()}")
    write_file(new, data)
    new.replace(path)


def _page(id_: str, request: ModelRequest, images: list[str]) -> str:
    parts = [f"<!-- Answer in {id_}.answer.md: your reply and nothing else. -->"]
    if request.schema:
        schema = json.dumps(request.schema, ensure_ascii=False)
        parts.append(f"<!-- The reply is JSON that satisfies: {schema} -->")
    parts += (f"<!-- Look at {name} -->" for name in images)
    parts += (f"# {message.role}\n\n{message.text.strip()}" for message in request.messages)
    return "\n\n".join(parts) + "\n"
