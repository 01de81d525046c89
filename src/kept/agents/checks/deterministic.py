"""Rule R33: a phase that is deterministic runs a command and reaches no model.

It is given none: no scope, no key, no network, an environment without secrets, and a time after
which it is ended. What must hold afterwards is said by six kinds of invariants; one of an unknown
kind does not hold.
"""

import re
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from shlex import join
from typing import Literal

from kept.core.artifact import is_safe_path
from kept.core.rollout import Failure
from kept.sandbox import Command, Exit, View, abilities, execute
from kept.sandbox.scratch import scratch_folder
from kept.sandbox.walls import Site

SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Invariant:
    """One thing that must hold when a phase has run."""

    kind: str
    """`file_exists`, `file_size_range`, `regex_absent`, `regex_present`, `exit_code` or
    `python_predicate`."""
    path: str = ""
    pattern: str = ""
    least: int = 0
    most: int | None = None
    equals: int = 0
    expression: str = ""
    """Of a predicate: Python that is true where it holds, run in the folder of the phase."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeterministicPhase:
    """A command and what must hold after it."""

    command: str
    invariants: tuple[Invariant, ...] = ()
    seconds: float = SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseEnd:
    """How a phase ended."""

    status: Literal["complete", "partial", "failed"]
    reason: str = ""
    violations: tuple[str, ...] = ()
    code: int | None = None
    output: str = field(default="", repr=False)


async def run_phase(phase: DeterministicPhase, folder: Path) -> PhaseEnd:
    """Run it in a folder, which it may change, and look at what it left."""
    ended = await _run(phase.command, folder, phase.seconds)
    if isinstance(ended, Failure):
        return PhaseEnd(status="failed", reason=ended.message)
    output = (ended.stdout + ended.stderr)[-4000:]
    if ended.timed_out:
        reason = f"still running after {phase.seconds:g} s"
        return PhaseEnd(status="partial", reason=reason, code=ended.code, output=output)
    codes = [one for one in phase.invariants if one.kind == "exit_code"]
    if ended.code and not codes:
        return PhaseEnd(status="failed", reason=str(ended), code=ended.code, output=output)
    broken = [
        wrong
        for one in phase.invariants
        if (wrong := await _violation(one, folder, ended, phase.seconds)) is not None
    ]
    if not broken:
        return PhaseEnd(status="complete", code=ended.code, output=output)
    return PhaseEnd(
        status="partial",
        reason="; ".join(broken),
        violations=tuple(broken),
        code=ended.code,
        output=output,
    )


async def _run(line: str, folder: Path, seconds: float) -> Exit | Failure:
    folder = folder.resolve()
    with ExitStack() as open_:
        scratch = open_.enter_context(scratch_folder("phase"))
        view = View(folder, seen=(folder,), writable=(folder,), network="none", bare=True)
        if abilities().walls:
            (scratch / "w").mkdir()
            command = Command(line, folder, seconds, view=view)
            return await execute(command, {}, Site(scratch / "w"))
        return await execute(Command(line, folder, seconds), {"HOME": str(scratch)})


async def _violation(one: Invariant, folder: Path, ended: Exit, seconds: float) -> str | None:
    if one.kind == "exit_code":
        return None if ended.code == one.equals else f"exit {ended.code}, not {one.equals}"
    if one.kind == "python_predicate":
        # one that never ends, or that exits, must not take us with it
        code = f"import sys; sys.exit(0 if ({one.expression}) else 1)"
        held = await _run(join([sys.executable, "-I", "-c", code]), folder, seconds)
        holds = isinstance(held, Exit) and held.ok
        return None if holds else f"`{one.expression}` does not hold"
    look = _LOOKS.get(one.kind)
    if look is None:
        return f"`{one.kind}` is no kind of invariant"
    if not is_safe_path(one.path):
        return f"`{one.path}` is no path below the folder of the phase"
    return look(one, folder / one.path)


def _exists(one: Invariant, file: Path) -> str | None:
    return None if file.is_file() else f"`{one.path}` is not there"


def _size(one: Invariant, file: Path) -> str | None:
    if not file.is_file():
        return f"`{one.path}` is not there"
    size = file.stat().st_size
    fits = size >= one.least and (one.most is None or size <= one.most)
    limits = f"{one.least} to {'any' if one.most is None else one.most}"
    return None if fits else f"`{one.path}` has {size} bytes, not {limits}"


def _absent(one: Invariant, file: Path) -> str | None:
    if not file.is_file():
        return None
    return f"`{one.path}` has `{one.pattern}`" if _found(one, file) else None


def _present(one: Invariant, file: Path) -> str | None:
    if not file.is_file():
        return f"`{one.path}` is not there"
    return None if _found(one, file) else f"`{one.path}` lacks `{one.pattern}`"


def _found(one: Invariant, file: Path) -> bool:
    text = file.read_text(encoding="utf-8", errors="replace")
    return re.search(one.pattern, text, re.MULTILINE) is not None


_LOOKS: Mapping[str, Callable[[Invariant, Path], str | None]] = {
    "file_exists": _exists,
    "file_size_range": _size,
    "regex_absent": _absent,
    "regex_present": _present,
}
