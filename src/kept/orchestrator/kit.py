"""What an agent run is done with: models, tools, checks, limits. Filled by a recipe."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from kept.core.ports import Clock, Model, Tool
from kept.core.rollout import Failure
from kept.evaluators.tools.shared_files import SharedFiles
from kept.orchestrator.budget import Metered
from kept.orchestrator.checks.base import Check, Runs
from kept.orchestrator.checks.deterministic import DeterministicPhase, RunsOn
from kept.orchestrator.record import Delegation, Limits, Models, Subtask

Texts = Mapping[str, str]
"""Prompts and artifacts of a run, by name."""

ToolsFor = Callable[[SharedFiles, Mapping[str, str]], Sequence[Tool]]
"""The tools for some files, told of by these texts."""


def _nobody(line: str) -> None:
    """Nobody listens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Errand:
    """What one worker is sent to do."""

    delegation: Delegation
    subtask: Subtask | None
    files: SharedFiles
    texts: Texts
    before: str
    """What others brought that it builds on, in words; empty for nothing."""
    held: Mapping[str, int]
    """Bytes of each file when the workers of its turn were sent: not what others write meanwhile,
    or what it is told would be a matter of timing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Worked:
    """What a worker brought back, or why it brought nothing."""

    result: Mapping[str, object] | None = None
    confidence: float | None = None
    failure: Failure | None = None
    """Of its own; one of infrastructure ends the run instead."""
    written: Mapping[str, bytes | None] = field(default_factory=dict[str, bytes | None])
    """Files as it left them; None for what it removed."""
    story: str = ""
    """What it did, in short, for its critic."""
    lost: int = 0
    """Errands that were cut off and ran again."""


class Works(Protocol):
    """One way of having a subtask done: a model with tools, an agent CLI."""

    async def __call__(self, errand: Errand, scope: Metered) -> Worked | Failure:
        """Do it once; a `Failure` is one of infrastructure."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Kit:
    """All that a run needs besides its task."""

    models: Models
    manager: Model
    critic: Model
    works: Works
    tools: ToolsFor
    checks: tuple[Check, ...]
    beside: Callable[[Mapping[str, bytes]], Runs]
    """Runs commands in a copy of the deliverables."""
    limits: Limits
    clock: Clock
    prompts: Mapping[str, str]
    """Of manager, worker and critic."""
    phases: tuple[DeterministicPhase, ...] = ()
    """What is run before anybody is asked (R33)."""
    runs_on: RunsOn | None = None
    """Runs those; None where there are none."""
    raised: Limits | None = None
    """What a run that a limit has ended may go on with; None where it is over."""
    says_tools: bool = False
    """Whether plans have to say what each subtask is done with (R31)."""
    room: int | None = None
    """Tokens that a request to the manager or the critic may have; None if unknown."""
    say: Callable[[str], None] = _nobody
    """Told what happens as it does, a line each: for people, and journalled elsewhere."""
