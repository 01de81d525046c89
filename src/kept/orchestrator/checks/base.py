"""The seam between a run and the checks that a completion has to pass."""

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
    """What a command in the sandbox came to."""

    exit_code: int
    output: str
    """Both streams, the end of them where they are long."""
    timed_out: bool = False
    usage: Usage = FREE
    """Nothing; a journal asks every reply."""
    seconds: float = 0.0


class Runs(Protocol):
    """Runs a command beside the deliverables, in the sandbox, without the network.

    What it changes is thrown away. It is journalled in the scope: a resume does not run it again.
    """

    async def __call__(self, command: Sequence[str], seconds: float, scope: Scope) -> Ran | Failure:
        """Run it once, in a copy of the output folder."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """What a manager says is complete, and all that a check may go by."""

    task: str
    plan: tuple[Subtask, ...]
    files: Mapping[str, bytes]
    """The deliverables: what stands in the output folder, by path below it."""
    previous: Mapping[str, int]
    """Bytes of each at the completion before; empty for the first."""
    final_result: Mapping[str, object]
    confidence: float | None
    critiques: tuple[tuple[str, Critique], ...]
    """Of the last iteration that delegated: worker and what was said of its result."""
    delegations: tuple[Delegation, ...]
    """Of that iteration, those without a critique among them; for one that failed and changed
    nothing, the work of its subtask that stands."""
    rejections: tuple[Rejection, ...]
    """Of earlier completions."""
    limits: Limits
    budget: BudgetSnapshot
    run: Runs
    inputs: tuple[str, ...] = ()
    """Paths of the files that the run was given; they are no deliverables."""
    texts: Mapping[str, str] = field(default_factory=dict[str, str])
    """The prompt artifacts of the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Passed:
    """The check has nothing against it."""

    notes: tuple[Finding, ...] = ()
    """What it would have a reader know all the same."""
    evaluation: Evaluated | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """It is not complete."""

    reason: str
    """For the manager, who has to do better."""
    findings: tuple[Finding, ...] = ()
    evaluation: Evaluated | None = None
    hopeless: bool = False
    """Whether the run is to end as failed rather than try again (an evaluation below `fail`)."""


CheckResult = Passed | Rejected


class Check(Protocol):
    """One thing that a completion has to pass. The first refusal ends the chain."""

    @property
    def name(self) -> str:
        """As the seed spells it: `l0`, `critique`, `placeholder`."""
        ...

    async def __call__(self, submission: Submission, scope: Scope) -> CheckResult | Failure:
        """Whether it passes; a `Failure` where nobody can tell, and then nothing is complete."""
        ...
