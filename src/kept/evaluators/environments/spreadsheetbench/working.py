"""Work of an episode: programs run on every workbook, and the cells of what they made.

All of it is done in the sandbox or in a bounded process, and journalled: a resume runs nothing
twice.
"""

import asyncio
import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from kept.core.ports import Scope
from kept.core.rollout import Failure
from kept.evaluators.environments.spreadsheetbench.prompts import INPUT, OUTPUT, PROGRAM, SOLUTION
from kept.evaluators.tools.libreoffice import recalculated
from kept.evaluators.tools.python_code import Bench, Ran, data_bench, run_program
from kept.sandbox.bounded import BoundedCalls, CallRaised
from kept.sandbox.child import ChildEnded
from kept.sandbox.command import Limits
from kept.sandbox.workspace import Scratch
from kept.settings import processors

READ_SECONDS = 60.0
"""For taking one workbook apart."""

_MIB = 1024 * 1024
MOST_BYTES = 16 * _MIB
"""Bytes of all that a program leaves."""

_LIMITS = Limits(memory=4096 * _MIB, file_size=MOST_BYTES, tree=128 * _MIB, processes=128)
_CALLS = BoundedCalls("kept.evaluators.environments.spreadsheetbench.cells:look")

Looked = Mapping[str, Any]
"""What `cells.look` returns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Where programs are run, and how long they may take."""

    scratch: Scratch
    data: Path
    """Hidden from programs: the answers lie in it."""
    seconds: float
    recalculate: bool
    turns: asyncio.Semaphore
    """One LibreOffice a processor."""

    @classmethod
    def of(cls, scratch: Scratch, data: Path, seconds: float, *, recalculate: bool) -> "Work":
        """One for all cases of an environment."""
        turns = asyncio.Semaphore(processors())
        return cls(
            scratch=scratch, data=data, seconds=seconds, recalculate=recalculate, turns=turns
        )

    def bench(self) -> Bench:
        """Where programs are run."""
        return replace(data_bench(self.scratch, (self.data,), self.seconds), limits=_LIMITS)

    async def run(self, scope: Scope, code: str, book: bytes) -> Ran | Failure:
        """Run a program of a student on one workbook; a fault of its own is a failed run."""
        files = {INPUT: book, SOLUTION: code.encode("utf-8", "replace")}
        ran = await run_program(self.bench(), scope, PROGRAM, files, MOST_BYTES + len(book))
        if isinstance(ran, Failure) and ran.blame == "candidate":
            return Ran(1, ran.message)
        if isinstance(ran, Failure) or not ran.ok or OUTPUT in ran.files:
            return ran
        return replace(ran, code=1, text=f"{ran.text}\nnothing was saved to OUTPUT_PATH")

    async def cells(
        self, scope: Scope, made: Mapping[str, bytes], areas: Mapping[str, Sequence[Any]]
    ) -> Mapping[str, Looked] | Failure:
        """The compared cells of workbooks by name, with formulas worked out."""

        async def do() -> Ran | Failure:
            found = await self._looked(made, areas)
            if isinstance(found, Failure):
                return found
            files = {name: json.dumps(one).encode() for name, one in found.items()}
            return Ran(0, "", files)

        known_by = {name: sha256(data).hexdigest() for name, data in sorted(made.items())}
        request = {"cells": known_by, "areas": dict(areas), "recalculate": self.recalculate}
        ran = await scope.call(request, Ran, do, 0.0)
        if isinstance(ran, Failure):
            return ran
        return {name: json.loads(data) for name, data in ran.files.items()}

    async def _looked(
        self, made: Mapping[str, bytes], areas: Mapping[str, Sequence[Any]]
    ) -> dict[str, Looked] | Failure:
        found = {
            name: await look_at(data, areas[name], formulas=self.recalculate)
            for name, data in made.items()
        }
        books = {name: made[name] for name, one in found.items() if one.get("formulas")}
        if not books:
            return found
        async with self.turns:
            bench = data_bench(self.scratch, (self.data,))
            came = await recalculated(bench, books)
        if isinstance(came, Failure):
            if came.blame == "infrastructure":
                return came
            return {**found, **{name: {"unreadable": came.message} for name in books}}
        for name in books:
            if name in came:
                found[name] = await look_at(came[name], areas[name])
            else:
                found[name] = {"unreadable": "LibreOffice cannot open it"}
        return found


async def look_at(data: bytes, areas: Sequence[Any], *, formulas: bool = False) -> Looked:
    """The compared cells of a workbook that a program made."""
    given = {"data": base64.b64encode(data).decode(), "areas": areas, "formulas": formulas}
    try:
        return await _CALLS.ask(given, READ_SECONDS)
    except (TimeoutError, MemoryError, CallRaised, ChildEnded, OSError) as error:
        return {"unreadable": _why(error)}


def look_into(path: Path, position: str = "", areas: Sequence[Any] = (), **given: bool) -> Looked:
    """The compared cells of a workbook of the data, without an event loop."""
    asked = {"path": str(path.absolute()), "position": position, "areas": areas, **given}
    try:
        return _CALLS.call(asked, READ_SECONDS)
    except (TimeoutError, MemoryError, CallRaised, ChildEnded, OSError) as error:
        return {"unreadable": _why(error)}


def _why(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"reading it takes more than {READ_SECONDS:g} seconds"
    return f"its reader failed: {error}"
