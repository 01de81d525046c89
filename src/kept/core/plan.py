"""Everything the loop needs, as one value. A recipe makes it from a spec."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kept.core.artifact import Candidate, Locator, Rules, locate_line_value
from kept.core.budget import Budget
from kept.core.case import Cases, Labels
from kept.core.event import SpecSettings
from kept.core.objective import Objective
from kept.core.ports import Gate, Guard, Journal, Probe, Proposer, Runner, Schedule, Scorer, Sink

TASK = "task"
"""Recipe that improves the artifacts of a task.yaml."""

FUNCTION = "function"
"""Recipe of `kept.optimize`."""

AGENT_CONFIG = "agent_config"
"""Recipe that tunes an agent.yaml."""

SKILL = "skill"
"""Recipe that trains a skill."""

AGENT_RUN = "agent_run"
"""Recipe of `kept agent run`: a manager and its workers do a task."""

REFINE = "refine"
"""Recipe that refines a finished agent run."""

SUITE = "suite"
"""Recipe that optimizes the prompts of agent runs."""

EVALUATE = "evaluate"
"""Recipe that measures what another recipe would improve, and changes nothing."""

COMPARE = "compare"
"""Recipe that compares texts with each other."""

ITERATIONS = "iterations"
"""The fact of a refinement with the folder of its iterations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A run, ready to go."""

    recipe: str
    seed: Candidate
    rules: Rules
    cases: Cases
    runner: Runner
    scorer: Scorer
    objective: Objective
    proposers: tuple[Proposer, ...]
    schedule: Schedule
    gate: Gate
    guards: tuple[Guard, ...] = ()
    """Checks that may refuse a candidate before anything is spent on it."""
    budget: Budget = field(default_factory=Budget)
    width: int = 1
    """Steps open at once."""
    workers: int = 1
    """Rollouts in flight at once."""
    retries: int = 2
    """Further tries of a rollout that infrastructure failed."""
    tries_one: bool = True
    """True if one rollout is tried before the others: if that fails, so may all of them."""
    random_seed: int = 0
    reserve: int = 0
    """Rollouts set aside for what is done at the end: the proof and the claim."""
    claims: int = 0
    """Of them, those for the claim alone."""
    least_end: tuple[int, int] = (0, 0)
    """Rollouts without which there is no end: a look, two passes and a claim; the claim alone."""
    worst_usd: float = 0.0
    """Most that one rollout can cost."""
    priced: bool = False
    """True if something costs money and has no declared maximum."""
    dear: bool = False
    """True if agents are paid, so that a step without a result is worth avoiding."""
    worst_seconds: float | None = None
    """Longest that one try of a rollout can take; None when nothing limits it."""
    locate: Locator = locate_line_value
    inputs: Mapping[str, str] = field(default_factory=dict[str, str])
    """Hashes of what the run depends on, by name."""
    spec: SpecSettings = field(default_factory=SpecSettings)
    """Spec, overrides and output folder of the run."""
    request: object = None
    """Request of the user, as the recipe's own type; None if the spec says it all."""
    facts: object = None
    """Further facts for readers and for a resume, as the recipe's own type."""
    not_race: str = ""
    """Reason for another gate than most runs have; empty if a spec names the gate."""
    gate_why: str = ""
    """The reason for the gate, where a recipe gives one for every gate."""
    sampled: bool = True
    """True if cases are samples of one population; the tasks of a suite are not."""
    seed_value: float | None = None
    """Metric of the seed, where it was measured before the run."""
    guidance: Mapping[str, str] = field(default_factory=dict[str, str])
    """Texts of the user for proposers and judges: `instruction`, `rubric`."""
    labels: Labels = field(default_factory=Labels)
    """Fields in which cases have their inputs and expected outputs."""
    modes: Mapping[str, int] = field(default_factory=dict[str, int])
    """Mode bits of artifacts that are files, by path."""
    probes: tuple[Probe, ...] = ()
    """Endpoints to look at before a new run begins."""
    views: tuple[Callable[[Journal], Sink], ...] = ()
    """Files that the spec asks for, each written by a sink made for the journal of the run."""

    def proposer(self, name: str) -> Proposer:
        """The proposer of that name."""
        return next(p for p in self.proposers if p.name == name)
