"""Interface between a run and the checks that a completion must pass."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from kept.core.ports import Scope
from kept.core.rollout import FREE, Failure, Usage
from kept.orchestrator.record import (
    BudgetSnapshot,
    Critique,
    Delegation,
    Evaluated,
    Finding,
    Limits,
    Rejection,
    Subtask,
)


@dataclass(frozen=True, slots=True)
class Ran:
    """Result of a command in the sandbox."""

    exit_code: int
    output: str
    """Stdout and stderr; only the end if they are long."""
    timed_out: bool = False
    usage: Usage = FREE
    """Always free; the journal requires the field of every reply."""
    seconds: float = 0.0


class Runs(Protocol):
    """Runs a command beside the deliverables, in the sandbox, without the network.

    Its changes are discarded. The scope journals the result, so a resume does not run it again.
    """

    async def __call__(self, command: Sequence[str], seconds: float, scope: Scope) -> Ran | Failure:
        """Run it once, in a copy of the output folder."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """Work that a manager declares complete, with all data available to checks."""

    task: str
    plan: tuple[Subtask, ...]
    files: Mapping[str, bytes]
    """Deliverables: files of the output folder, by path below it."""
    previous: Mapping[str, int]
    """Bytes of each file at the previous completion; empty for the first."""
    final_result: Mapping[str, object]
    confidence: float | None
    critiques: tuple[tuple[str, Critique], ...]
    """Workers of the last iteration that delegated, each with the critique of its result."""
    delegations: tuple[Delegation, ...]
    """Delegations of that iteration, also those without a critique. One that failed and changed
    nothing is replaced by the latest valid work on its subtask."""
    rejections: tuple[Rejection, ...]
    """Rejections of earlier completions."""
    limits: Limits
    budget: BudgetSnapshot
    run: Runs
    inputs: tuple[str, ...] = ()
    """Paths of the input files of the run, which are not deliverables."""
    texts: Mapping[str, str] = field(default_factory=dict[str, str])
    """Prompt artifacts of the run, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Passed:
    """The completion passes the check."""

    notes: tuple[Finding, ...] = ()
    """Remarks for readers that do not refuse the completion."""
    evaluation: Evaluated | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """The check refuses the completion."""

    reason: str
    """Explanation for the manager."""
    findings: tuple[Finding, ...] = ()
    evaluation: Evaluated | None = None
    hopeless: bool = False
    """True if the run must end as failed instead of trying again (evaluation below `fail`)."""


CheckResult = Passed | Rejected


class Check(Protocol):
    """One check of a completion. The first refusal ends the chain."""

    @property
    def name(self) -> str:
        """Name as the source spells it: `l0`, `critique`, `placeholder`."""
        ...

    async def __call__(self, submission: Submission, scope: Scope) -> CheckResult | Failure:
        """Check a submission; a `Failure` means undecided, and then it is not complete."""
        ...
