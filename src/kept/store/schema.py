"""Schemas of journalled dicts that the core leaves open: settings, accounts, facts.

Settings come from a schedule for a proposer, accounts from a proposer about its step, facts from
the plan about the run. Only keys that a reader depends on are listed; others are allowed. A value
that does not match was changed by another program. It is reported by name and never misread.

The request of a run allows no extra keys, because a resume takes it as a whole. An unknown key
was renamed, or asks for a feature that this version lacks.
"""

from collections.abc import Mapping
from typing import Any, Literal, NotRequired, TypedDict, cast

import msgspec

from kept.core.event import Event, Proposed, StepClosed, StepOpened
from kept.core.plan import (
    AGENT_RUN,
    COMPARE,
    COORDINATE,
    EVAL,
    ITERATIONS,
    REFINE,
    SEED_VALUE,
    SKILL,
    SUITE,
)
from kept.core.proposal import Proposal, Skip
from kept.models.prompts import ARTIFACTS

Words = str | None
Names = list[str] | None
Number = float | None

LATEST = 253402300799.0
"""The last second that a calendar has a date for."""


class RerunAccount(TypedDict, total=False):
    """Of an iteration of a refinement."""

    run_id: str
    status: str
    seconds: float
    loss: dict[str, float]
    tier: Words
    manager: Words
    worker: Words
    parent_run_id: str


class DiagnosisAccount(TypedDict):
    """What a critic said."""

    failing_pattern: str
    root_cause_hypothesis: str
    suggested_change_direction: str
    citations: list[str]
    avoid: NotRequired[list[str]]


class TrialAccount(TypedDict, total=False):
    """Of a trial of numbers, words or examples."""

    axis: str
    critic: DiagnosisAccount
    applier: dict[str, object]
    params: dict[str, object]
    axis_marginals: dict[str, dict[str, object]] | None
    demos: list[str]


class PatchAccount(TypedDict):
    """What one analyst proposed."""

    source_type: str
    patch: NotRequired[dict[str, object]]


class PatternAccount(TypedDict):
    """What went wrong more than once."""

    count: object
    pattern: object


class DigestAccount(TypedDict, total=False):
    """What a batch showed."""

    failure_patterns: list[PatternAccount]


class TrainingAccount(TypedDict, total=False):
    """Of a step that trains a skill."""

    rollout: dict[str, object] | None
    merged: dict[str, object] | None
    patches: list[PatchAccount]
    items: list[dict[str, object]]
    digest: DigestAccount


class UpdateAccount(TypedDict, total=False):
    """Of an epoch that updates prompts."""

    artifact: str
    considered: list[dict[str, object]]


ACCOUNTS: Mapping[str, Any] = {
    REFINE: RerunAccount,
    COORDINATE: TrialAccount,
    SKILL: TrainingAccount,
    SUITE: UpdateAccount,
}
"""By recipe, of those whose proposers are all Kept's own."""

WHOLE: Mapping[str, tuple[str, ...]] = {
    REFINE: ("run_id", "status", "seconds", "loss", "tier", "manager", "worker")
}
"""By recipe, what an account has all of or nothing."""


class TurnSettings(TypedDict, total=False):
    """What a schedule of Kept's tells a proposer."""

    k: int
    tier: Words
    axis: str
    epoch: int
    step: int
    max_edits: int | None


def check_told(event: Event, recipe: str) -> None:
    """The same of a step, as far as whoever reads runs of this recipe depends on it."""
    if isinstance(event, StepOpened):
        if event.rollouts_at < 0:
            raise ValueError("`rollouts_at` is below 0")
        settings = event.turn.settings
        if settings and recipe in ACCOUNTS:
            if recipe == REFINE and "k" not in settings:
                raise ValueError("`turn.settings.k` is missing")
            check_shape(settings, TurnSettings, "turn.settings")
    elif isinstance(event, StepClosed):
        if not 0 <= event.rollouts[0] <= event.rollouts[1]:
            raise ValueError("`rollouts` is no range of bytes")
    elif isinstance(event, Proposed) and isinstance(event.reply, Proposal | Skip):
        _check_account(event.reply.about, recipe)


def _check_account(about: Mapping[str, object], recipe: str) -> None:
    """Of what a proposer told of its step, where the recipe's proposers are Kept's own."""
    kind = ACCOUNTS.get(recipe)
    if kind is None or not about:
        return
    whole = WHOLE.get(recipe, ())
    if (missing := [name for name in whole if name not in about]) and len(missing) < len(whole):
        raise ValueError(f"`reply.about.{missing[0]}` is missing")
    check_shape(about, kind, "reply.about")


def check_time(t: float) -> None:
    """The same of when something happened."""
    if not 0.0 <= t <= LATEST:
        raise ValueError(f"`t` is {t:g}, which is no time")


def check_shape(value: object, kind: Any, place: str) -> None:  # noqa: ANN401 # whatever describes a type
    """Raise a `ValueError` that names the place of what is not of this kind."""
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$")
        raise ValueError(f"`{place}{where.removesuffix('`')}`: {what}") from error


class ConstraintFact(TypedDict):
    """A constraint of the objective."""

    metric: str
    op: str
    value: float


class PartFact(TypedDict):
    """A part of a composite scorer."""

    name: str
    scorer: "ScorerFact"


class NamedFact(TypedDict):
    """Something with a name."""

    name: str


class RuleFact(TypedDict):
    """A rule of a scorer."""

    kind: str


class JudgeFact(TypedDict):
    """Who judges."""

    provider: str
    model: str


class ScorerFact(TypedDict, total=False):
    """How candidates are run, or scored."""

    type: str
    command: object
    rules: list[RuleFact]
    criteria: list[NamedFact]
    judges: list[JudgeFact] | None
    draws: int
    cap: Number
    pairwise: dict[str, object] | None
    parts: list[PartFact]


class SandboxFact(TypedDict, total=False):
    """What commands run within."""

    not_enforced: list[str]


class ComparisonFact(TypedDict):
    """What is compared."""

    labels: list[str]
    least: Number
    most: int
    plan: bool
    passes: int | None


class TypedFact(TypedDict):
    """What a command line says of a comparison besides; one of a call of Python has no spec."""

    words: list[str]
    here: str
    cases: Words
    commits: dict[str, str]


class CountsFact(TypedDict):
    """How many cases a comparison has."""

    holdout: int


class WantedFact(TypedDict, total=False):
    """Which cases are measured, and how often."""

    repeats: int
    limit: int | None
    timeout: Number
    filter: str
    min_score: Number
    output_json: str
    split: str


class SweepFact(TypedDict):
    """What is measured."""

    asked: int
    wanted: WantedFact
    cases: NotRequired[Names]
    name: NotRequired[Words]
    kind: NotRequired[Words]
    pass_at: NotRequired[Number]
    agent: NotRequired[dict[str, object] | None]


class TuningFact(TypedDict, total=False):
    """What a command line says of a run that tunes an agent."""

    max_cycles: int | None
    max_minutes: Number
    max_usd: Number
    numeric_max_trials: int | None
    numeric_patience: int | None
    textual_max_trials: int | None
    textual_patience: int | None
    repeats: int | None
    accept_sigma: Number
    seed: int | None
    output: Words
    allow_unpriced: bool | None


class PhaseFact(TypedDict):
    """A phase of such a run."""

    name: str
    proposer: str
    max_trials: int
    patience: int
    least: int


class OptimizerFact(TypedDict):
    """The block that such a run goes by."""

    loss_weights: dict[str, float]
    axes: object
    budget: dict[str, dict[str, Number]]
    repeats: NotRequired[int]
    holdout_eval_policy: NotRequired[str]


class RefinementFact(TypedDict):
    """What is refined, and how."""

    run: str
    folder: str
    session: str
    low: list[str]
    mid: list[str]
    high: list[str]
    settings: list[str]
    target: NotRequired[str]
    iterations: NotRequired[int]
    model: NotRequired[str]
    worker_model: NotRequired[str]
    from_last: NotRequired[bool]
    start: NotRequired[str]
    gate: NotRequired[str]
    repeats: NotRequired[int]
    cases: NotRequired[Words]
    config: NotRequired[Words]
    readings_usd: NotRequired[Number]


class AssignmentFact(TypedDict):
    """What an agent run was asked for."""

    task: str
    folder: str
    inputs: list[str]
    settings: list[str]
    tags: list[str]
    output: NotRequired[Words]
    config: NotRequired[Words]
    brief: NotRequired[str]
    parent_run_id: NotRequired[Words]


class SuiteFact(TypedDict):
    """What a command line says of a run that optimizes prompts."""

    epochs: int | None
    target: str
    folder: str
    stamp: str


FACTS: Mapping[str, Any] = {
    **dict.fromkeys(("metric", "direction", "gate", "home"), str),
    **dict.fromkeys(
        ("spec", "id", "description", "source", "not_race", "seed_run", "start_run", ITERATIONS),
        Words,
    ),
    **dict.fromkeys(("results", "folder", "registry", "measure"), Words),
    **dict.fromkeys(("guards", "proposers", "tie_breakers"), list[str]),
    **dict.fromkeys(("set", "set_again"), Names),
    **dict.fromkeys(("prompts", "names", "artifacts"), dict[str, str] | None),
    **dict.fromkeys(("width", "workers", "random_seed"), int),
    "epochs": int | None,
    "stages": dict[str, str],
    **dict.fromkeys(("runner", "scorer"), ScorerFact | None),
    **dict.fromkeys(("named", "shared", "baseline_only"), bool | None),
    "cases": Literal["none"] | dict[str, int],
    "budget": dict[str, Number],
    "constraints": list[ConstraintFact],
    "tie_tolerance": float,
    SEED_VALUE: Number,
    "sandbox": SandboxFact | None,
    "optimizer": OptimizerFact | None,
    "phases": list[PhaseFact] | None,
    "helpers": dict[str, dict[str, str]] | None,
    "helper_files": dict[str, str] | None,
    COMPARE: ComparisonFact,
    EVAL: SweepFact,
    COORDINATE: TuningFact,
    REFINE: RefinementFact,
    AGENT_RUN: AssignmentFact,
    SUITE: SuiteFact,
    SKILL: dict[str, object],
}
"""By name; a fact of another name may be anything."""

NEEDED: Mapping[str, Mapping[str, Any]] = {
    COMPARE: {COMPARE: ComparisonFact, "cases": CountsFact},
    EVAL: {EVAL: SweepFact},
    COORDINATE: {COORDINATE: TuningFact, "optimizer": OptimizerFact},
    REFINE: {REFINE: RefinementFact},
    AGENT_RUN: {AGENT_RUN: AssignmentFact},
    SUITE: {SUITE: SuiteFact},
    SKILL: {SKILL: dict[str, object], "folder": str},
}
"""By recipe, the facts that its readers cannot do without."""

CLOSED: Mapping[tuple[str, ...], Any] = {
    (EVAL, "wanted"): WantedFact,
    (COORDINATE,): TuningFact,
    (REFINE,): RefinementFact,
    (AGENT_RUN,): AssignmentFact,
    (SUITE,): SuiteFact,
}
"""By their place, the facts that are read as a whole."""


def check_facts(facts: Mapping[str, object], recipe: str = "") -> None:
    """Raise a `ValueError` that names the fact that is not what it should be."""
    for name, kind in NEEDED.get(recipe, {}).items():
        _check_needed(facts, name, kind)
    for name, value in facts.items():
        kind = FACTS.get(name)
        if kind is not None:
            check_shape(value, kind, f"facts.{name}")
    # a run is not gone on with without these, by what it tells of itself
    if COMPARE in facts and facts.get("spec"):
        _check_needed(facts, COMPARE, TypedFact)
    if EVAL in facts and cast("Mapping[str, object]", facts[EVAL]).get("kind") == SKILL:
        _check_needed(facts, "folder", str)
    for name in ARTIFACTS if REFINE in facts and facts.get("artifacts") else ():
        if name not in cast("Mapping[str, str]", facts["artifacts"]):
            raise ValueError(f"`facts.artifacts.{name}` is missing")
    for place, kind in CLOSED.items():
        _check_closed(facts, place, kind)


def _check_needed(facts: Mapping[str, object], name: str, kind: Any) -> None:  # noqa: ANN401 # whatever describes a type
    if name not in facts:
        raise ValueError(f"`facts.{name}` is missing")
    check_shape(facts[name], kind, f"facts.{name}")


def _check_closed(facts: Mapping[str, object], place: tuple[str, ...], kind: Any) -> None:  # noqa: ANN401 # as above
    inside: Mapping[str, object] = facts
    for name in place:
        inside = cast("Mapping[str, object]", inside.get(name) or {})
    known: Mapping[str, object] = kind.__annotations__
    for name in inside:
        if name not in known:
            raise ValueError(f"`facts.{'.'.join((*place, name))}` is no key that is known here")


def seed_value(facts: Mapping[str, Any]) -> float | None:
    """The metric of the seed by a measurement before the run; None where it names none."""
    value = facts.get(SEED_VALUE)
    return None if value is None else float(value)
