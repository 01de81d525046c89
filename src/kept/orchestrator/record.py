"""Record of an agent run, during the run and after its end, as one value.

All values are plain texts, numbers, lists and mappings, so they can be stored and read back. The
loop fills them, the checks read them, and the files of a run are written from them.
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
"""Phase of the budget on its scarcest axis: over 60 %, 30 %, 10 %, something, nothing left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Models:
    """Names of the models, as in specs."""

    manager: str
    worker: str
    critic: str = ""
    """Model of the critic; empty if it is the manager's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of an agent run on every axis; `usd` None is no limit."""

    loops: int = 100
    """Turns of managers."""
    workers: int = 500
    tokens: int = 10_000_000
    tool_calls: int = 1_500
    wall_seconds: float = 3_600.0
    depth: int = 4
    """Levels of managers, including the first."""
    usd: float | None = None
    rejected_completions: int = 2
    """Equal rejections in a row after which a repair is forced, or the run ends."""
    parallel_workers: int = 4
    workers_per_iteration: int = 6
    repairs: int = 2
    """Maximum repairs of one subtask."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Used:
    """Use of the limits so far."""

    loops: int = 0
    workers: int = 0
    tokens: int = 0
    tool_calls: int = 0
    wall_seconds: float = 0.0
    depth: int = 1
    usd: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetSnapshot:
    """State of the budget at one moment."""

    used: Used
    remaining: float
    """Share of the scarcest axis that is left, 0 to 1."""
    scarcest: str
    """Axis of that share, by its name in `Limits`."""
    phase: Phase
    wanted: Mapping[str, float] = field(default_factory=dict[str, float])
    """Worst case of the last refused call, by axis."""


How = Literal["reuse", "synthesize", "generate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """Capability that a subtask needs, and the means that provides it."""

    capability: str
    how: How
    of: str = ""
    """Tool, pattern or archetype; empty if something new must be made."""
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
    """Files that it must produce, as paths below the output folder."""
    schemas: Mapping[str, Mapping[str, object]] = field(
        default_factory=dict[str, Mapping[str, object]]
    )
    """JSON schemas of outputs, by path."""
    smoke_test: str = ""
    """Script among the outputs, or command, that must exit with 0; empty for none."""
    tools: tuple[str, ...] = ()
    """Names of the tools that the manager plans for it."""
    needs: tuple[Need, ...] = ()
    """Needed capabilities and their means (R31)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """A worker that the manager wants to send, even if the run refuses it."""

    worker_id: str
    subtask_id: str
    instructions: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Decision of the manager in one turn."""

    kind: Literal["plan", "delegate", "complete", "fail", "diagnose"]
    why: str = ""
    plan: tuple[Subtask, ...] = ()
    delegations: tuple[Wish, ...] = ()
    final_result: Mapping[str, object] = field(default_factory=dict[str, object])
    confidence: float | None = None
    reason: str = ""
    """Reason of a `fail`."""
    failed_worker: str = ""
    hypotheses: tuple[str, ...] = ()
    """Hypotheses of a `diagnose`."""
    raw: str = ""
    """Raw reply of the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Defect:
    """One thing that a critic found wrong."""

    category: Category
    location: str
    description: str
    severity: Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class Critique:
    """Critique of one worker's result, or of the whole run."""

    score: float
    """Score from 0 (worthless) to 1 (without fault)."""
    defects: tuple[Defect, ...] = ()
    prescriptions: tuple[str, ...] = ()
    reusable_patterns: tuple[str, ...] = ()
    effort: Effort = "moderate"
    summary: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delegation:
    """One subtask given to one worker, and its result."""

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
    """Reply of the worker, including `confidence`; None if there is none."""
    confidence: float | None = None
    failure: Failure | None = None
    """Failure that explains a missing result."""
    critique: Critique | None = None
    critique_failure: Failure | None = None
    """Failure of a requested critique."""
    lost: int = 0
    """Errands of an agent CLI that were cut off and ran again; their cost is unknown."""
    tool_calls: int = 0
    written: tuple[str, ...] = ()
    """Files that the worker changed, as paths below the workspace."""
    usage: Usage = FREE
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One problem or remark found by a check, with its location."""

    file: str
    detail: str
    rule: str = ""
    line: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOutcome:
    """Result of one check of one completion."""

    check: str
    passed: bool
    reason: str = ""
    findings: tuple[Finding, ...] = ()
    """Problems; for a check that passed, remarks for readers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """A refusal: of a completion, or of another request of the manager."""

    iteration: int
    gate: str
    """Check that refused: `l0`, `critique`, `placeholder` …; else `budget`, `workers`, `depth` …"""
    reason: str
    completion: bool
    """True if a completion was refused. Only those count in the loss."""
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """One forced repair, and the similarity of its output to the one before."""

    iteration: int
    subtask_id: str
    worker_id: str
    attempt: int
    reason: str
    similarity: float | None = None
    """Similarity to the output before, set if it ended the repairs; else None."""
    fixpoint: bool = False
    """True if it changed so little that the repairs end (R35)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Iteration:
    """One turn of the manager and all its results."""

    number: int
    """Number of the turn, from 1."""
    decision: Decision | None
    """None if the manager made no valid decision."""
    garbage: tuple[str, ...] = ()
    """Problem of each invalid answer."""
    delegations: tuple[Delegation, ...] = ()
    checks: tuple[CheckOutcome, ...] = ()
    """Outcomes in the order of the checks; the last one refused, if any did."""
    budget: BudgetSnapshot | None = None
    """State of the budget after the iteration."""
    began: float = 0.0
    """Seconds since the run began."""
    ended: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated:
    """Measurements of the `eval` check."""

    score: float
    per_metric: Mapping[str, float] = field(default_factory=dict[str, float])
    thresholds: Mapping[str, float] = field(default_factory=dict[str, float])
    action: str = ""
    """Consequence: `accept`, `retry_with_repair` or `fail`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deliverable:
    """One file that the run delivers."""

    path: str
    """Path below the output folder."""
    bytes: int
    sha256: str
    declared: bool = False
    """True if the plan named it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Phased:
    """Result of a deterministic phase (R33)."""

    name: str
    status: Literal["complete", "partial", "failed"]
    reason: str = ""
    written: tuple[str, ...] = ()
    """Paths of the files that it changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Raised:
    """Continuation of a run with higher limits, after a limit had ended it."""

    after: int
    """Number of turns before the continuation."""
    before: Limits
    limits: Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRun:
    """Complete record of an agent run."""

    run_id: str
    task: str
    models: Models
    limits: Limits
    """Current limits; `raised` has the earlier ones."""
    started: float
    """Seconds since the epoch."""
    inputs: tuple[str, ...] = ()
    """Input files, as paths below the input folder."""
    plan: tuple[Subtask, ...] = ()
    """Latest plan."""
    iterations: tuple[Iteration, ...] = ()
    rejections: tuple[Rejection, ...] = ()
    """Rejections in order, each once."""
    repairs: tuple[Repair, ...] = ()
    raised: tuple[Raised, ...] = ()
    phases: tuple[Phased, ...] = ()
    """Deterministic phases, which run before the first turn."""
    evaluation: Evaluated | None = None
    critique: Critique | None = None
    """Critique of the whole run: mean score and all defects of the last critiques."""
    deliverables: tuple[Deliverable, ...] = ()
    budget: BudgetSnapshot | None = None
    """State of the budget, now or at the end."""
    status: Status = "running"
    reason: str = ""
    """Reason of the end: `completed`, `max_loops`, `repair_fixpoint_detected` …"""
    final_result: Mapping[str, object] = field(default_factory=dict[str, object])
    confidence: float | None = None
    parent_run_id: str | None = None
    tags: tuple[str, ...] = ()
    usage: Usage = FREE
    ended: float | None = None
    """Seconds since the epoch; None while it runs."""
