"""What the journal holds: one frozen record for each thing that happened.

Every record carries its `kind`, so that a line can be read without knowing what to expect, and the
time it was written, which nothing that decides may look at.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from kept.core.budget import NO_CALL, NOTHING, Dearest, Spend, StopReason
from kept.core.edit import EditReport
from kept.core.proposal import Reply, Turn
from kept.core.score import Evaluation
from kept.core.verdict import Verdict

SCHEMA = 1
"""Version of the records; a reader refuses journals with a higher one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted:
    """A run began."""

    run_id: str
    recipe: str
    seed: str
    """Id of the seed candidate."""
    inputs: Mapping[str, str]
    """Hashes of what the run depends on, by name; a resume compares them."""
    facts: Mapping[str, object] = field(default_factory=dict[str, object])
    """What a reader wants to know of the plan: spec path, gate, metric, cases, budget."""
    version: str
    t: float
    schema: int = SCHEMA
    kind: Literal["run_started"] = "run_started"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResumed:
    """A run that had stopped goes on."""

    facts: Mapping[str, object] = field(default_factory=dict[str, object])
    """As at the start, where a resume may differ: a larger budget, say."""
    version: str
    t: float
    kind: Literal["run_resumed"] = "run_resumed"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOpened:
    """A step began."""

    step: int
    turn: Turn
    incumbent: str
    rollouts_at: int
    """Size of the rollout file then: everything this step asks for stands behind it."""
    t: float
    kind: Literal["step_opened"] = "step_opened"


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposed:
    """A proposer answered."""

    step: int
    reply: Reply
    spend: Spend = NOTHING
    t: float
    kind: Literal["proposed"] = "proposed"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepClosed:
    """A step has its verdict."""

    step: int
    candidate: str | None
    """None when there was nothing to judge."""
    incumbent: str
    """What it was judged against: the incumbent it was last rebased on."""
    reports: tuple[EditReport, ...]
    verdict: Verdict
    evaluations: tuple[Evaluation, ...]
    """Tallies of both sides, by purpose."""
    spend: Spend
    rollouts: tuple[int, int]
    """Byte range of the rollout file that holds its rollouts, among others."""
    given_up: StopReason | None = None
    """Why it could not be paid any more: from here on, only the end of the run can."""
    dearest: Dearest = NO_CALL
    """Of all calls so far."""
    times: Mapping[str, float] = field(default_factory=dict[str, float])
    """When rollouts began, when the last was scored, when the gate decided; by stage."""
    t: float
    kind: Literal["step_closed"] = "step_closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStopped:
    """A sitting ended in good order."""

    reason: StopReason
    t: float
    spend: Spend = NOTHING
    """What closed steps used after they were closed, and no later step has counted."""
    kind: Literal["run_stopped"] = "run_stopped"


Event = RunStarted | RunResumed | StepOpened | Proposed | StepClosed | RunStopped
