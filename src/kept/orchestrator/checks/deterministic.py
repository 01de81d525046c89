"""Rule R33: a phase that is deterministic runs a command and reaches no model.

It is given none: no scope, no key, no network, an environment without secrets, and a time after
which it is ended. What must hold afterwards is said by six kinds of invariants; one of an unknown
kind does not hold.
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from shlex import join
from typing import Literal, Protocol

from kept.core.artifact import is_safe_path
from kept.core.rollout import Failure
from kept.sandbox.command import Exit

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
    name: str = ""
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
    files: Mapping[str, bytes] = field(default_factory=dict[str, bytes], repr=False)
    """What there is afterwards."""


class RunsOn(Protocol):
    """Runs a line of the shell on a copy of some files, without the network and without keys."""

    async def __call__(
        self, line: str, files: Mapping[str, bytes], seconds: float
    ) -> tuple[Exit | Failure, Mapping[str, bytes]]:
        """How it ended, and what the files are then."""
        ...


async def run_phase(
    phase: DeterministicPhase, files: Mapping[str, bytes], run: RunsOn
) -> PhaseEnd | Failure:
    """Run it on some files, and look at what it left; a `Failure` is one of infrastructure."""
    ended, left = await run(phase.command, files, phase.seconds)
    if isinstance(ended, Failure):
        if ended.blame == "infrastructure":
            return ended
        return PhaseEnd(status="failed", reason=ended.message, files=files)
    output = (ended.stdout + ended.stderr)[-4000:]
    end = PhaseEnd(status="complete", code=ended.code, output=output, files=left)
    if ended.timed_out:
        reason = f"still running after {phase.seconds:g} s"
        return replace(end, status="partial", reason=reason)
    codes = [one for one in phase.invariants if one.kind == "exit_code"]
    if ended.code and not codes:
        return replace(end, status="failed", reason=str(ended))
    broken: list[str] = []
    for one in phase.invariants:
        wrong = await _violation(one, end, run, phase.seconds)
        if isinstance(wrong, Failure):
            return wrong
        broken += [] if wrong is None else [wrong]
    if not broken:
        return end
    return replace(end, status="partial", reason="; ".join(broken), violations=tuple(broken))


async def _violation(
    one: Invariant, end: PhaseEnd, run: RunsOn, seconds: float
) -> str | Failure | None:
    """What does not hold; a `Failure` where that could not be found out."""
    if one.kind == "exit_code":
        return None if end.code == one.equals else f"exit {end.code}, not {one.equals}"
    if one.kind == "python_predicate":
        # one that never ends, or that exits, must not take us with it
        code = f"import sys; sys.exit(0 if ({one.expression}) else 1)"
        held, _ = await run(join([sys.executable, "-I", "-c", code]), end.files, seconds)
        if isinstance(held, Failure) and held.blame == "infrastructure":
            return held
        holds = isinstance(held, Exit) and held.ok
        return None if holds else f"`{one.expression}` does not hold"
    if one.kind not in (*_LOOKS, *_SEARCHES):
        return f"`{one.kind}` is no kind of invariant"
    if not is_safe_path(one.path):
        return f"`{one.path}` is no path below the folder of the phase"
    if one.kind in _SEARCHES:
        return await _search(one, end.files, run, seconds)
    return _LOOKS[one.kind](one, end.files.get(one.path))


async def _search(
    one: Invariant, files: Mapping[str, bytes], run: RunsOn, seconds: float
) -> str | Failure | None:
    """Look for a pattern where the command ran: it may take more time than there is."""
    wanted = one.kind == "regex_present"
    if one.path not in files:
        return f"`{one.path}` is not there" if wanted else None
    line = join([sys.executable, "-I", "-c", _FIND, one.pattern, one.path])
    ended, _ = await run(line, {one.path: files[one.path]}, seconds)
    if isinstance(ended, Failure):
        return ended
    if ended.timed_out:
        return f"looking for `{one.pattern}` in `{one.path}` takes more than {seconds:g} s"
    if ended.code not in (_FOUND, _NOT_FOUND):
        return f"cannot look for `{one.pattern}` in `{one.path}`: {ended}"
    if (ended.code == _FOUND) == wanted:
        return None
    return f"`{one.path}` {'lacks' if wanted else 'has'} `{one.pattern}`"


def _exists(one: Invariant, data: bytes | None) -> str | None:
    return f"`{one.path}` is not there" if data is None else None


def _size(one: Invariant, data: bytes | None) -> str | None:
    if data is None:
        return f"`{one.path}` is not there"
    fits = len(data) >= one.least and (one.most is None or len(data) <= one.most)
    limits = f"{one.least} to {'any' if one.most is None else one.most}"
    return None if fits else f"`{one.path}` has {len(data)} bytes, not {limits}"


_LOOKS: Mapping[str, Callable[[Invariant, bytes | None], str | None]] = {
    "file_exists": _exists,
    "file_size_range": _size,
}
_SEARCHES = ("regex_absent", "regex_present")
_FOUND, _NOT_FOUND = 10, 11
_FIND = f"""
import re, sys
text = open(sys.argv[2], "rb").read().decode("utf-8", "replace")
sys.exit({_FOUND} if re.search(sys.argv[1], text, re.MULTILINE) else {_NOT_FOUND})
"""
