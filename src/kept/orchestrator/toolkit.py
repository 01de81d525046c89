"""Dependencies of an agent run: models, tools, checks, limits, prompts and phases.

A recipe fills it in. Requirements of a subtask are announced before any worker starts (R31).
Phases without a model run before any model is called, each once (R33). The prompts are three
system prompts, and six texts that can be improved.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, cast

from kept.core.ports import Clock, Model, Scope, Tool
from kept.core.rollout import FREE, Failure, Usage
from kept.core.untyped import dict_in, list_in
from kept.evaluators.tools.files import SharedFiles, changes_between
from kept.models.prompts import ARTIFACTS, RunPrompt, filled, prompt
from kept.orchestrator.budget import PHASE_FAILED, PHASE_PARTIAL, Metered
from kept.orchestrator.checks.base import Check, Runs
from kept.orchestrator.checks.execution import DeterministicPhase, RunsOn, run_phase
from kept.orchestrator.events import Moment, Story, phase_line
from kept.orchestrator.record import Delegation, How, Limits, Models, Need, Phased, Subtask

Texts = Mapping[str, str]
"""Prompt texts and artifacts of a run, by name."""

ToolsFor = Callable[[SharedFiles, Mapping[str, str]], Sequence[Tool]]
"""Function that returns the tools for shared files, with these texts as descriptions."""


def _nobody(line: str) -> None:
    """Ignore a line: the default without a listener."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Errand:
    """Assignment of one worker."""

    delegation: Delegation
    subtask: Subtask | None
    files: SharedFiles
    texts: Texts
    before: str
    """Results of other workers that it builds on, as text; empty for none."""
    held: Mapping[str, int]
    """Bytes of each file when the workers of its turn were sent. Later changes are left out, so
    that its prompt does not depend on timing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Worked:
    """Result of a worker, or its failure."""

    result: Mapping[str, object] | None = None
    confidence: float | None = None
    failure: Failure | None = None
    """Failure of the worker itself; one of infrastructure ends the run instead."""
    written: Mapping[str, bytes | None] = field(default_factory=dict[str, bytes | None])
    """Content of the files that it changed; None for deleted ones."""
    story: str = ""
    """Summary of its steps, for its critic."""
    lost: int = 0
    """Number of errands that were cut off and ran again."""


class Works(Protocol):
    """A kind of worker: a model with tools, or an agent CLI."""

    async def __call__(self, errand: Errand, scope: Metered) -> Worked | Failure:
        """Do the errand once; a `Failure` is one of infrastructure."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Kit:
    """Everything that a run needs besides its task."""

    models: Models
    manager: Model
    critic: Model
    works: Works
    tools: ToolsFor
    checks: tuple[Check, ...]
    beside: Callable[[Mapping[str, bytes]], Runs]
    """Function that returns a command runner for a copy of the deliverables."""
    limits: Limits
    clock: Clock
    prompts: Mapping[str, str]
    """System prompts of manager, worker and critic."""
    phases: tuple[DeterministicPhase, ...] = ()
    """Deterministic phases, which run before the first model call (R33)."""
    runs_on: RunsOn | None = None
    """Runner of the phases; None if there are none."""
    raised: Limits | None = None
    """New limits for a run that a limit has ended; None if it cannot continue."""
    says_tools: bool = False
    """True if plans must name the tools or means of each subtask (R31)."""
    room: int | None = None
    """Tokens that a request to the manager or the critic may have; None if unknown."""
    say: Callable[[str], None] = _nobody
    """Called with a line of progress for people; the journal is separate."""


RULE = """\
Every subtask says what it is done with: in `tools`, names of the tools that there are, or in
`tool_manifest`, a list of objects with `capability` (what has to be possible) and
`reuse_or_generate`: `reuse` with `tool` or `pattern_id`, `synthesize` with `archetype_id` and
`recipe_params`, `generate` with `assumptions` (a list). A plan without that is not taken."""
"""Addition to the manager's prompt if its plans must name tools or means."""

_WITH: Mapping[How, tuple[tuple[str, ...], ...]] = {
    "reuse": (("tool", "pattern_id"),),
    "synthesize": (("archetype_id",), ("recipe_params",)),
    "generate": (("assumptions",),),
}
"""Keys required by each value of `reuse_or_generate`: one of each group."""


def needs_of(rows: Sequence[object]) -> tuple[Need, ...]:
    """Return the needs of the valid rows of a manifest."""
    return tuple(_need(row) for row in map(_row, rows) if not any(_faults(row)))


def manifest_faults(
    subtask: str, rows: Sequence[object], named: Sequence[str], tools: Sequence[str]
) -> Iterator[str]:
    """Yield all problems with the tools and the manifest of one subtask."""
    there = ", ".join(tools)
    if not rows and not named:
        yield f"subtask `{subtask}` does not say what it is done with: `tools` (of {there})"
    for number, row in enumerate(map(_row, rows), 1):
        at = f"row {number} of the `tool_manifest` of subtask `{subtask}`"
        yield from (f"{at} {fault}" for fault in _faults(row))
        tool = row.get("tool")
        if isinstance(tool, str) and tool_name(tool) not in tools:
            yield f"{at} names the tool `{tool}`; there is {there}"


def tool_name(name: str) -> str:
    """Return a tool name as providers accept it.

    The source has dots in its names; its arithmetic tools are one tool here.
    """
    plain = name.strip().replace(".", "_")
    return "arithmetic" if plain.startswith("arithmetic") else plain


def _row(value: object) -> Mapping[str, Any]:
    return dict_in(value)


def _faults(row: Mapping[str, Any]) -> Iterator[str]:
    if not str(row.get("capability") or "").strip():
        yield "has no `capability`"
    how = row.get("reuse_or_generate")
    if how not in _WITH:
        yield f"has `reuse_or_generate` {how!r}, which is one of {', '.join(_WITH)}"
        return
    for names in _WITH[cast("How", how)]:
        # one key of each group is enough
        if not any(name in row for name in names):
            yield f"is to {how} and has no {' or '.join(f'`{name}`' for name in names)}"


def _need(row: Mapping[str, Any]) -> Need:
    given = row.get("assumptions")
    assumed = list_in(given)
    of = row.get("tool") or row.get("pattern_id") or row.get("archetype_id") or ""
    return Need(
        capability=str(row["capability"]).strip(),
        how=row["reuse_or_generate"],
        of=str(of),
        assumptions=tuple(str(one) for one in assumed),
    )


@dataclass(frozen=True, slots=True)
class _Left:
    """Journalled result of one phase, so that a resume does not run it again."""

    phased: Phased
    changes: Mapping[str, bytes | None] = field(default_factory=dict[str, bytes | None])
    usage: Usage = FREE


async def run_phases(kit: Kit, files: SharedFiles, scope: Scope, story: Story) -> str | Failure:
    """Run all phases; return the reason if the run ends with one, else an empty text.

    A `Failure` is one of infrastructure.
    """
    if kit.runs_on is None:
        return ""
    for phase in kit.phases:
        left = await _once(phase, kit.runs_on, files, scope.branch(phase.name))
        if isinstance(left, Failure):
            return left
        # on a resume the journalled changes are applied without running the command
        files.apply(left.changes, files.stamp())
        came = left.phased
        kit.say(phase_line(came))
        await story.tell(partial(Moment, phased=came))
        if came.status != "complete":
            kind = PHASE_FAILED if came.status == "failed" else PHASE_PARTIAL
            return f"{kind}: {came.name}: {came.reason}"
    return ""


async def _once(
    phase: DeterministicPhase, run: RunsOn, files: SharedFiles, scope: Scope
) -> _Left | Failure:
    async def do() -> _Left | Failure:
        end = await run_phase(phase, files.all(), run)
        if isinstance(end, Failure):
            return end
        changes = changes_between(files.all(), end.files)
        if why := files.refusal(changes):
            return _Left(Phased(name=phase.name, status="failed", reason=why))
        written = tuple(sorted(changes))
        phased = Phased(name=phase.name, status=end.status, reason=end.reason, written=written)
        return _Left(phased, changes)

    return await scope.call({"phase": phase.name, "command": phase.command}, _Left, do, 0.0)


ROLES: tuple[RunPrompt, ...] = ("manager", "worker", "critic")

_SECTION = re.compile(
    r"^##[ \t]+`?([\w.-]+)`?[ \t]*\n(.*?)(?=^##[ \t]|\Z)", re.MULTILINE | re.DOTALL
)


def own_artifacts() -> dict[str, str]:
    """Return Kept's own prompt artifacts, by name."""
    return {name: prompt(name) for name in ARTIFACTS}


def own_prompts() -> dict[str, str]:
    """Return Kept's own system prompts, by role."""
    return {name: prompt(name) for name in ROLES}


def tool_texts(text: str) -> dict[str, str]:
    """Return the description of each tool by name, from sections of Markdown."""
    found = _SECTION.findall(text)
    return {name.replace(".", "_"): " ".join(body.split()) for name, body in found if body.strip()}


def joined(*parts: str) -> str:
    """Join the non-empty texts, with an empty line between them."""
    return "\n\n".join(part.strip() for part in parts if part.strip())


def place(text: str, values: Mapping[str, str]) -> str:
    """Return a text with its placeholders filled in."""
    return filled(text, values)
