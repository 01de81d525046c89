"""What an agent run is, while it goes on and when it has ended, as one value.

Pure values, made of texts, numbers, lists and mappings alone, so that they can be written down and
read back. Who runs fills them, who checks reads them, and the files of a run are written from them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from kept.core.rollout import FREE, Failure, Usage

Status = Literal["running", "complete", "partial", "failed", "aborted"]

Severity = Literal["critical", "warning", "info"]

Category = Literal[
    "missing_data", "wrong_format", "incomplete", "hallucinated", "stale", "policy_violation"
]

Effort = Literal["trivial", "moderate", "major"]

Phase = Literal["ample", "moderate", "low", "critical", "exhausted"]
"""How much is left on the scarcest axis: over 60 %, 30 %, 10 %, something, nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Models:
    """Who thinks, as specs spell them."""

    manager: str
    worker: str
    critic: str = ""
    """Empty where the manager's model judges."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What an agent run may use at most, on every axis; `usd` None is no limit."""

    loops: int = 100
    """Turns of the manager."""
    workers: int = 500
    tokens: int = 10_000_000
    tool_calls: int = 1_500
    wall_seconds: float = 3_600.0
    depth: int = 4
    """Managers below one another, this one among them."""
    usd: float | None = None
    rejected_completions: int = 2
    """Rejections alike, after which a repair is forced, or the run ends."""
    parallel_workers: int = 4
    workers_per_iteration: int = 6
    repairs: int = 2
    """Repairs of one subtask."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Used:
    """What was used of the limits so far."""

    loops: int = 0
    workers: int = 0
    tokens: int = 0
    tool_calls: int = 0
    wall_seconds: float = 0.0
    depth: int = 1
    usd: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetSnapshot:
    """Where the budget stands at one moment."""

    used: Used
    remaining: float
    """Share of the scarcest axis that is left, 0 to 1."""
    scarcest: str
    """The axis that share is of, by its name in `Limits`."""
    phase: Phase
    wanted: Mapping[str, float] = field(default_factory=dict[str, float])
    """By axis, what the last call could have come to that there was no room for."""


How = Literal["reuse", "synthesize", "generate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """Something that has to be possible for a subtask, and by which means it is."""

    capability: str
    how: How
    of: str = ""
    """The tool, pattern or archetype; empty where something new is to be made."""
    assumptions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Subtask:
    """One part of a plan."""

    id: str
    description: str
    dependencies: tuple[str, ...] = ()
    priority: int = 0
    success_criteria: tuple[str, ...] = ()
    required_outputs: tuple[str, ...] = ()
    """Files that it must leave, by paths below the output folder."""
    schemas: Mapping[str, Mapping[str, object]] = field(
        default_factory=dict[str, Mapping[str, object]]
    )
    """JSON schemas of outputs, by path."""
    smoke_test: str = ""
    """A script among the outputs, or a command, that must end well; empty for none."""
    tools: tuple[str, ...] = ()
    """What the manager means to have it done with, by names of tools."""
    needs: tuple[Need, ...] = ()
    """The same at length (R31)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """A worker that the manager wants to send, whether or not it can be."""

    worker_id: str
    subtask_id: str
    instructions: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What the manager decided in one turn."""

    kind: Literal["plan", "delegate", "complete", "fail", "diagnose"]
    why: str = ""
    plan: tuple[Subtask, ...] = ()
    delegations: tuple[Wish, ...] = ()
    final_result: Mapping[str, object] = field(default_factory=dict[str, object])
    confidence: float | None = None
    reason: str = ""
    """Of a `fail`."""
    failed_worker: str = ""
    hypotheses: tuple[str, ...] = ()
    """Of a `diagnose`."""
    raw: str = ""
    """What the model wrote."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Defect:
    """One thing that a critic found wrong."""

    category: Category
    location: str
    description: str
    severity: Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class Critique:
    """What a critic says of one worker's result, or of the whole run."""

    score: float
    """0 is worthless, 1 without fault."""
    defects: tuple[Defect, ...] = ()
    prescriptions: tuple[str, ...] = ()
    reusable_patterns: tuple[str, ...] = ()
    effort: Effort = "moderate"
    summary: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delegation:
    """One subtask given to one worker, and what came of it."""

    worker_id: str
    subtask_id: str
    instructions: str
    tools_allowed: tuple[str, ...] = ()
    required_fields: tuple[str, ...] = ()
    output_description: str = ""
    temperature: float | None = None
    repair_of: str = ""
    """The worker whose result this one repairs; empty for none."""
    attempt: int = 1
    result: Mapping[str, object] | None = None
    """What the worker returned, `confidence` among it; None while there is nothing."""
    confidence: float | None = None
    failure: Failure | None = None
    """Why there is no result."""
    critique: Critique | None = None
    critique_failure: Failure | None = None
    """Why there is no critique, where one was asked for."""
    lost: int = 0
    """Errands of an agent CLI that were cut off and ran again: what they cost, nobody knows."""
    tool_calls: int = 0
    written: tuple[str, ...] = ()
    """Files that the worker changed, by paths below the workspace."""
    usage: Usage = FREE
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that a check found, where it found it."""

    file: str
    detail: str
    rule: str = ""
    line: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOutcome:
    """What one check said of one completion; each stands here once."""

    check: str
    passed: bool
    reason: str = ""
    findings: tuple[Finding, ...] = ()
    """Of a check that passed: what it would have a reader know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """Something that the run refused: a completion, or another wish of the manager's."""

    iteration: int
    gate: str
    """Which check: `l0`, `critique`, `placeholder` …; or `plan`, `delegation` …"""
    reason: str
    completion: bool
    """Whether a completion was refused. Only those count in the loss."""
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """One repair: who it was forced upon, and how far its output moved."""

    iteration: int
    subtask_id: str
    worker_id: str
    attempt: int
    reason: str
    similarity: float | None = None
    """Of this output to the one before; None for the first."""
    fixpoint: bool = False
    """Whether it moved so little that repairing ends (R35)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Iteration:
    """One turn of the manager and all that it led to."""

    number: int
    """From 1."""
    decision: Decision | None
    """None where the manager did not decide anything that could be read."""
    garbage: tuple[str, ...] = ()
    """What was wrong with each answer that had to be asked for again."""
    delegations: tuple[Delegation, ...] = ()
    checks: tuple[CheckOutcome, ...] = ()
    """In the order they were asked; the last one is the one that refused, if any did."""
    budget: BudgetSnapshot | None = None
    """After the iteration."""
    began: float = 0.0
    """Seconds since the run began."""
    ended: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated:
    """What the `eval` check measured."""

    score: float
    per_metric: Mapping[str, float] = field(default_factory=dict[str, float])
    thresholds: Mapping[str, float] = field(default_factory=dict[str, float])
    action: str = ""
    """`accept`, `retry_with_repair`, `fail` …"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deliverable:
    """One file that the run leaves."""

    path: str
    """Below the output folder."""
    bytes: int
    sha256: str
    declared: bool = False
    """Whether the plan named it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Phased:
    """A phase without any model came to its end (R33)."""

    name: str
    status: Literal["complete", "partial", "failed"]
    reason: str = ""
    written: tuple[str, ...] = ()
    """Files that it changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Raised:
    """A run that a limit had ended goes on with higher ones."""

    after: int
    """The last turn with the limits before."""
    before: Limits
    limits: Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRun:
    """An agent run: everything there is to know of it."""

    run_id: str
    task: str
    models: Models
    limits: Limits
    """What it has now; `raised` tells what it had before."""
    started: float
    """Seconds since the epoch."""
    inputs: tuple[str, ...] = ()
    """Files that it was given, by paths below the input folder."""
    plan: tuple[Subtask, ...] = ()
    """The last one."""
    iterations: tuple[Iteration, ...] = ()
    rejections: tuple[Rejection, ...] = ()
    """In order, each once."""
    repairs: tuple[Repair, ...] = ()
    raised: tuple[Raised, ...] = ()
    phases: tuple[Phased, ...] = ()
    """Before the first turn."""
    evaluation: Evaluated | None = None
    critique: Critique | None = None
    """Of the whole run: the mean score of the last critiques, and all of their defects."""
    deliverables: tuple[Deliverable, ...] = ()
    budget: BudgetSnapshot | None = None
    """At the end, or now."""
    status: Status = "running"
    reason: str = ""
    """Why it ended so: `completed`, `max_loops`, `repair_fixpoint_detected`, `manager_garbage` …"""
    final_result: Mapping[str, object] = field(default_factory=dict[str, object])
    confidence: float | None = None
    parent_run_id: str | None = None
    tags: tuple[str, ...] = ()
    usage: Usage = FREE
    ended: float | None = None
    """Seconds since the epoch; None while it runs."""
