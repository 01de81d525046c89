"""Everything the loop needs, as one value. A recipe makes it from a spec."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kept.core.artifact import Candidate, Locator, Rules, locate_line_value
from kept.core.budget import Budget
from kept.core.case import Cases, Labels
from kept.core.objective import Objective
from kept.core.ports import Gate, Guard, Journal, Probe, Proposer, Runner, Schedule, Scorer, Sink

SKILL = "skill"
"""The recipe that trains a skill, and the fact that tells by which config."""

COMPARE = "compare"
"""The recipe of a comparison, and the fact that tells what was compared."""

COORDINATE = "coordinate"
"""The recipe that tunes an agent, and the fact that tells how it was asked."""

WHY_NOT_RACE = "not_race"
"""The fact of a plan that says why another gate decides than most runs have; empty where the task
names its gate, and where it is the race."""

GATE_WHY = "gate_why"
"""The fact of a run that tunes an agent: the reason for its gate."""

REFINE = "refine"
"""The recipe that refines a finished run, and the fact that tells how it was asked."""

SUITE = "suite"
"""The recipe that optimizes the prompts of agent runs, and the fact that tells how it was asked."""

AGENT_RUN = "agent run"
"""The recipe of a run of `kept agent run`, and the fact that tells what was asked."""

EVAL = "eval"
"""The recipe of a run that measures and changes nothing, and the fact that tells what was asked."""

PASS_AT = "pass_at"
"""The fact of a task that says at which value of its metric a case passes."""

SEED_VALUE = "seed_value"
"""The fact that holds the metric of the seed, of a run whose seed was measured before it."""

ITERATIONS = "iterations"
"""The fact that tells where the iterations of a refinement lie."""


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
    """What a candidate is refused for before anything is spent on it."""
    budget: Budget = field(default_factory=Budget)
    width: int = 1
    """Steps open at once."""
    workers: int = 1
    """Rollouts in flight at once."""
    retries: int = 2
    """Further tries of a rollout that infrastructure failed."""
    tries_one: bool = True
    """Whether one rollout is tried before the others: where that fails, so may all of them."""
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
    """Whether something costs money, and nobody says how much at most."""
    dear: bool = False
    """Whether agents are paid: what a step costs that comes to nothing is worth saving."""
    worst_seconds: float | None = None
    """Longest that one try of a rollout can take; None when nothing limits it."""
    locate: Locator = locate_line_value
    inputs: Mapping[str, str] = field(default_factory=dict[str, str])
    """Hashes of what the run depends on, by name."""
    facts: Mapping[str, object] = field(default_factory=dict[str, object])
    """What a reader wants to know: spec path, description …"""
    guidance: Mapping[str, str] = field(default_factory=dict[str, str])
    """What somebody wrote for whoever proposes or judges: `instruction`, `rubric`."""
    labels: Labels = field(default_factory=Labels)
    """Where cases have their inputs and expected outputs."""
    modes: Mapping[str, int] = field(default_factory=dict[str, int])
    """Mode bits of artifacts that are files, by path."""
    probes: tuple[Probe, ...] = ()
    """Endpoints to look at before a new run begins."""
    views: tuple[Callable[[Journal], Sink], ...] = ()
    """Files that the spec asks for, each written by a sink made for the journal of the run."""

    def proposer(self, name: str) -> Proposer:
        """The proposer of that name."""
        return next(p for p in self.proposers if p.name == name)
