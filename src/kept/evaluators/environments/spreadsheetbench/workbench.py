"""SpreadsheetBench prompts, and execution of programs on workbooks.

The prompts are two system prompts, the question, and the result of a program. Programs and cell
reads run in the sandbox or in a bounded process, and are journalled: a resume repeats nothing.
"""

import asyncio
import base64
import importlib.util
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from kept.core.ports import Scope
from kept.core.rollout import Failure
from kept.evaluators.tools.libreoffice import recalculated
from kept.evaluators.tools.python_code import Bench, Ran, data_bench, run_program
from kept.sandbox.command import Limits
from kept.sandbox.worker import ChildEnded
from kept.sandbox.worker_pool import BoundedCalls, CallRaised
from kept.sandbox.workspace import Scratch
from kept.settings import processors

Prompt = Literal["official", "custom"]
Mode = Literal["single", "multi", "react"]

INPUT, OUTPUT, SOLUTION = "input.xlsx", "output.xlsx", "solution.py"
"""Names of files in a workspace."""

MOST_TOLD = 3000
"""Maximum number of characters, from the end, of a failing program's output in a message."""

MOST_WRONG = 20
"""Maximum number of wrong cells shown to a student or an analyst."""

_OFFICIAL = """\
You are an expert in spreadsheets. You are given an instruction, a preview of a workbook, and the \
cells where the result is expected. Write one Python program that carries the instruction out. It \
finds the path of the workbook in the variable INPUT_PATH, and saves the changed workbook to \
OUTPUT_PATH; both are defined before it starts. It may use the standard library and {packages}. \
Reply with the whole program in a single ```python block."""

_CUSTOM = """

## Critical Rules
- Write values, not formulas: work every result out in Python.
- Import nothing but the standard library and {packages}.
- Read all data from the workbook. The preview shows only its beginning, and the program is \
also run on other workbooks of the same shape, so copy no values from the preview.
- Read from INPUT_PATH, save to OUTPUT_PATH, and keep all that the instruction does not change."""

_REACT = """\
You are an expert in spreadsheets. The workbook {input} lies in your workspace. Look at it with \
the tool `bash`, and carry the instruction out with a Python program in the file {solution}. It \
finds the path of the workbook in the variable INPUT_PATH, and saves the changed workbook to \
OUTPUT_PATH; both are defined before it starts. It may use the standard library and {packages}. \
It will be run on other workbooks of the same shape, too. When it is done, answer without using a \
tool."""

_ASK = {
    "single": "Write the Python program that carries the instruction out.",
    "multi": (
        "Write the Python program that carries the instruction out. It is run, and where it fails "
        "you are told how and asked again."
    ),
    "react": f"Carry the instruction out, and leave the program in {SOLUTION}.",
}

WORKSPACE = f"""\
{INPUT} is the workbook of the task. Leave the program as {SOLUTION}, or give it in your last
message. It is run with INPUT_PATH and OUTPUT_PATH defined, on this workbook and on others of the
same shape.
"""
"""README.txt in the workspace of an agent CLI."""

_FLAGS = re.DOTALL | re.MULTILINE | re.IGNORECASE
_START = r"^[ \t]*```[ \t]*(?:python3?|py)?[ \t]*\r?\n"
_FENCE = re.compile(_START + r"(.*?)^[ \t]*```", _FLAGS)
_OPEN = re.compile(_START + r"(.*)\Z", _FLAGS)


def system_of(prompt: Prompt, mode: Mode) -> str:
    """The system prompt, without the skill."""
    here = [name for name in ("openpyxl", "pandas") if importlib.util.find_spec(name)]
    packages = " and ".join(here) or "openpyxl"
    text = _REACT if mode == "react" else _OFFICIAL
    text += _CUSTOM if prompt == "custom" else ""
    return text.format(packages=packages, input=INPUT, solution=SOLUTION)


def question(data: dict[str, str], mode: Mode) -> str:
    """The instruction, where its result is expected, and how the workbook begins."""
    kind = f"Instruction type: {data['instruction_type']}\n" if data["instruction_type"] else ""
    return (
        f"# Instruction\n{data['instruction']}\n\n{kind}"
        f"Expected answer position: {data['answer_position']}\n\n"
        f"# Input spreadsheet preview\n{data['preview']}\n\n# Task\n{_ASK[mode]}"
    )


def code_in(said: str) -> str:
    """The program in a reply: its first block of code, else the whole text."""
    found = _FENCE.search(said) or _OPEN.search(said)
    return (found[1] if found else said).strip("\n") + "\n"


def failed_text(text: str) -> str:
    """Message to the student about a program that failed."""
    return (
        f"The program did not work:\n\n{text[-MOST_TOLD:]}\n\n"
        "Correct it, and reply with the whole program in a single ```python block."
    )


def wrong_text(cells: list[str]) -> str:
    """Message to the student about wrong values; used in training only."""
    return (
        "The program ran, and these cells are not as expected:\n\n"
        + "\n".join(cells)
        + "\n\nCorrect it, and reply with the whole program in a single ```python block."
    )


PROGRAM = f'''\
import ast
import os

PATHS = {{"INPUT_PATH": os.path.abspath("{INPUT}"), "OUTPUT_PATH": os.path.abspath("{OUTPUT}")}}


class Given(ast.NodeTransformer):
    """Leaves out what would give the paths another value."""

    def visit_Assign(self, node):
        return without(node, node.targets)

    def visit_AnnAssign(self, node):
        return without(node, [node.target])


def without(node, targets):
    names = {{getattr(one, "id", "") for one in targets}}
    return ast.copy_location(ast.Pass(), node) if names <= {{*PATHS}} else node


with open("{SOLUTION}", encoding="utf-8") as file:
    tree = Given().visit(ast.parse(file.read(), "{SOLUTION}"))
exec(compile(tree, "{SOLUTION}", "exec"), {{"__name__": "__main__", **PATHS}})
'''
"""Runs the program of a student with its two paths."""


READ_SECONDS = 60.0
"""Time limit for reading one workbook."""

_MIB = 1024 * 1024
MOST_BYTES = 16 * _MIB
"""Maximum size of all files that a program leaves, in bytes."""

_LIMITS = Limits(memory=4096 * _MIB, file_size=MOST_BYTES, tree=128 * _MIB, processes=128)
_CALLS = BoundedCalls("kept.evaluators.environments.spreadsheetbench.cells:look")

Looked = Mapping[str, Any]
"""Result of `cells.look`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Execution of programs on workbooks, with their time limit."""

    scratch: Scratch
    data: Path
    """Folder hidden from programs: it holds the answers."""
    seconds: float
    recalculate: bool
    turns: asyncio.Semaphore
    """Limits LibreOffice to one process per processor."""

    @classmethod
    def of(cls, scratch: Scratch, data: Path, seconds: float, *, recalculate: bool) -> "Work":
        """Make one for all cases of an environment."""
        turns = asyncio.Semaphore(processors())
        return cls(
            scratch=scratch, data=data, seconds=seconds, recalculate=recalculate, turns=turns
        )

    def bench(self) -> Bench:
        """Bench of the programs, with their limits."""
        return replace(data_bench(self.scratch, (self.data,), self.seconds), limits=_LIMITS)

    async def run(self, scope: Scope, code: str, book: bytes) -> Ran | Failure:
        """Run a student's program on one workbook; its own fault is a failed run."""
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
