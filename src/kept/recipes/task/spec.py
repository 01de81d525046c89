"""Schema of task.yaml, with its guards and race sections.

Validation here needs no other file. Keys without an effect do not exist. `race` is a preset plus
any of the figures that `kept check` shows.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from kept.core.artifact import is_safe_path
from kept.core.objective import Direction, Operator
from kept.evaluators.runners.registry import RUNNERS
from kept.evaluators.scorers.registry import SCORERS
from kept.gates._pairs import TENURE
from kept.proposers.registry import PROPOSERS
from kept.spec.shared_sections import ModelsSpec, SandboxSpec
from kept.spec.validate import Count, Finite, Ratio, SpecModel, Text, Texts, shares_of, some


def _off(value: object) -> object:
    # `length: false` switches a guard off
    return None if value is False else value


def _titles(value: Any) -> Any:  # noqa: ANN401 # whatever a file may say
    # a single message for any other value, not one for each member of the union
    if value == "all" or isinstance(value, list):
        return value  # pyright: ignore[reportUnknownVariableType] # of anything
    raise ValueError("neither `all` nor a list of titles")


class LengthGuardSpec(SpecModel):
    """Guard against texts that get longer instead of better."""

    max_growth: Annotated[Finite, Field(ge=1)] | None = None
    """Multiple of the seed's tokens; 3 if no limit is given."""
    max_tokens: Count | None = None
    max_chars: Count | None = None


class StuffingGuardSpec(SpecModel):
    """Guard against texts that repeat the same words."""

    max_density: Annotated[Finite, Field(gt=0, le=1)] = 0.25
    max_repetition: Annotated[Finite, Field(gt=0, le=1)] = 0.3


class SectionsGuardSpec(SpecModel):
    """Guard against texts that drop or empty a section of the seed."""

    keep: Annotated[
        Literal["all"] | Annotated[tuple[Text, ...], Field(strict=False), AfterValidator(some)],
        BeforeValidator(_titles),
    ] = "all"
    max_level: Annotated[int, Field(ge=1, le=6)] = 6


class CopyGuardSpec(SpecModel):
    """Guard against texts that copy text of the cases."""

    allow_train: bool | None = None
    """True to allow text of train cases; by default only with a `demos` proposer."""


class GuardsSpec(SpecModel):
    """Guards that check a candidate before its rollouts."""

    length: Annotated[LengthGuardSpec | None, BeforeValidator(_off)] = None
    stuffing: Annotated[StuffingGuardSpec | None, BeforeValidator(_off)] = None
    sections: Annotated[SectionsGuardSpec | None, BeforeValidator(_off)] = None
    copied: Annotated[CopyGuardSpec | None, BeforeValidator(_off)] = Field(
        default=CopyGuardSpec(), alias="copy"
    )


Chance = Annotated[Finite, Field(gt=0, lt=1)]
Positive = Annotated[Finite, Field(gt=0)]


def _part(share: float) -> float:
    if not 0 < share < 1:
        raise ValueError(f"{share:g} is no part of the scale; write it as in 0.05")
    return share


def _rising(counts: tuple[int, ...]) -> tuple[int, ...]:
    if not counts or any(late <= early for early, late in pairwise(counts)):
        raise ValueError("each look is later than the one before; write them as in [2, 4, 8]")
    return counts


def _steps(steps: tuple[tuple[int, float], ...]) -> tuple[tuple[int, float], ...]:
    _rising(tuple(draws for draws, _ in steps))
    return steps


Passes = Annotated[Count, Field(le=TENURE)]
"""Passes over the cases; more than `TENURE` would be rollouts of the next incumbent's time."""

Looks = Annotated[tuple[Passes, ...], Field(strict=False), AfterValidator(_rising)]
Step = Annotated[tuple[Count, Finite], Field(strict=False)]
Steps = Annotated[tuple[Step, ...], Field(strict=False), AfterValidator(_steps)]
"""Pairs of a number of rollouts and the gain that they must show."""


class ScreenSpec(SpecModel):
    """Figures of the screen on train cases."""

    cited: Count | None = None
    most_cited: Count | None = None
    steps: Steps | None = None
    together: Steps | None = None
    alone: Steps | None = None
    fixes: Finite | None = None
    breaks: Finite | None = None
    trust: Finite | None = None
    passes: Count | None = None
    cases: Count | None = None
    typical: Positive | None = None


class SimplifySpec(SpecModel):
    """Figures of the test of simpler candidates."""

    margin: Annotated[Finite, AfterValidator(_part)] | None = None
    """Share of the scale that a simplification may lose."""
    alpha: Chance | None = None
    most: Passes | None = None
    patience: Positive | None = None
    hope: Chance | None = None
    screen: Looks | None = None


class FinalSpec(SpecModel):
    """Figures of the final among alternatives."""

    most: Annotated[int, Field(ge=0)] | None = None
    """Most alternatives in a final; 0 for no final."""
    passes: Looks | None = None
    behind: Chance | None = None


class RaceSpec(SpecModel):
    """Figures of a race; a single word names its preset."""

    preset: Literal["fast", "balanced", "careful"] = "balanced"
    """Effort that the race spends on certainty."""
    alpha: Chance | None = None
    promote_alpha: Chance | None = None
    aim: Positive | None = None
    patience: Positive | None = None
    most: Passes | None = None
    promote_passes: Looks | None = None
    doubt: Chance | None = None
    claim_passes: Passes | None = None
    pool_goal: Positive | None = None
    pool_most: Count | None = None
    screen: ScreenSpec = Field(default_factory=ScreenSpec)
    simplify: SimplifySpec = Field(default_factory=SimplifySpec)
    final: FinalSpec = Field(default_factory=FinalSpec)

    @property
    def said(self) -> Mapping[str, Any]:
        """Figures that the task sets itself."""
        found = self.model_dump(exclude={"preset"}, exclude_none=True)
        return {name: value for name, value in found.items() if value != {}}


def _preset(value: object) -> object:
    # `race: careful` for short
    return {"preset": value} if isinstance(value, str) else value


Race = Annotated[RaceSpec, BeforeValidator(_preset)]


def _number(value: object) -> object:
    # a scorer's `true` counts as 1
    return float(value) if isinstance(value, bool) else value


def _file_type(text: str) -> str:
    if not re.fullmatch(r"\.[^./\\\s]+", text):
        raise ValueError(f"`{text}` is not a file type; write it as in `.md`")
    return text


def _below(text: str) -> str:
    if not is_safe_path(text.rstrip("/")):
        raise ValueError(f"`{text}` is not a path below the task's folder")
    if text.split("/")[0] in (".git", ".kept"):
        raise ValueError(f"`{text}` is in a folder that is not yours to write to")
    return text.rstrip("/")


class ArtifactsSpec(SpecModel):
    """Files that may change."""

    include: Annotated[Texts, AfterValidator(some)]
    exclude: Texts = ()
    max_files_per_iteration: Count | None = None


class ProtectSpec(SpecModel):
    """A part of artifacts that no candidate may change: between two marks, or a section."""

    begin: Text | None = None
    end: Text | None = None
    section: Text | None = None
    """The title of a heading of Markdown."""

    @classmethod
    def faults(cls, said: Mapping[str, Any]) -> Iterator[str]:
        """Check that either two marks or a section are given."""
        if not {"begin", "end", "section"} <= said.keys():
            return
        marks = [said["begin"], said["end"]]
        if said["section"] is not None:
            if marks != [None, None]:
                yield "`section` and marks are two entries, not one"
        elif None in marks:
            yield "give both marks, `begin` and `end`, or a `section`"
        elif marks[0] == marks[1]:
            yield "`begin` and `end` are the same mark"


class MutationSpec(SpecModel):
    """Ways in which artifacts may be changed."""

    mode: Literal["direct_edit"] | None = None
    """`direct_edit` lets a model edit the artifacts; `proposers`, if given, replace it."""
    allowed_file_types: Annotated[
        tuple[Annotated[Text, AfterValidator(_file_type)], ...], Field(strict=False)
    ] = ()
    """Types of artifacts that may be edited, by default all; others stay as they are."""
    max_changed_lines: Count | None = None
    """Lines removed plus lines added by one candidate."""
    protect: Annotated[tuple[ProtectSpec, ...], Field(strict=False)] = ()
    """Parts of the artifacts that stay unchanged."""


class ObjectiveSpec(SpecModel):
    """Metric that says which candidate is better."""

    primary_metric: Text
    direction: Direction
    bounds: Annotated[tuple[Finite, Finite], Field(strict=False)] | None = None
    tie_tolerance: Annotated[Finite, Field(ge=0)] = 0.0
    deterministic: bool = False
    """True if the same candidate always scores the same: nothing is run again to confirm it."""
    pass_at: Finite | None = None
    """Value of the primary metric at which `kept eval` counts a case as passed."""

    @classmethod
    def faults(cls, said: Mapping[str, Any]) -> Iterator[str]:
        """Check that bounds are in order, with `pass_at` between them."""
        bounds, pass_at = said.get("bounds"), said.get("pass_at")
        if bounds is not None and not bounds[0] < bounds[1]:
            yield "`bounds` are reversed: write the least value, then the greatest"
        elif bounds is not None and pass_at is not None and not bounds[0] <= pass_at <= bounds[1]:
            yield f"`pass_at` is {pass_at:g}, outside the `bounds` {bounds[0]:g} … {bounds[1]:g}"


class ConstraintSpec(SpecModel):
    """A condition on a metric; a candidate that violates it is not kept."""

    metric: Text
    op: Operator
    value: Annotated[Finite, BeforeValidator(_number)]


class TieBreakerSpec(SpecModel):
    """Metric that decides between equals: `lower: metric` or `higher: metric`."""

    lower: Text | None = None
    higher: Text | None = None

    @classmethod
    def faults(cls, said: Mapping[str, Any]) -> Iterator[str]:
        """Check that exactly one of the two is given."""
        if {"lower", "higher"} <= said.keys() and (said["lower"] is None) == (
            said["higher"] is None
        ):
            yield "a tie-breaker is either `lower: METRIC` or `higher: METRIC`"


class PolicySpec(SpecModel):
    """Rules by which a candidate is kept or discarded."""

    keep_if: Literal["better_primary"] = "better_primary"
    """`better_primary` is the gate `strict`."""
    on_failure: Literal["discard", "stop"] = "discard"
    """Effect of a candidate that crashes: it is dropped and the run goes on, or the run ends."""
    tie_breakers: Annotated[tuple[TieBreakerSpec, ...], Field(strict=False)] = ()


class BudgetSpec(SpecModel):
    """Limits at which a run stops."""

    max_iterations: Count | None = None
    max_failures: Count | None = None
    max_minutes: Annotated[Finite, Field(gt=0)] | None = None
    max_usd: Annotated[Finite, Field(ge=0)] | None = None
    usd_per_rollout: Annotated[Finite, Field(ge=0)] | None = None
    """Maximum cost of one rollout, which is charged for each. Without it, each call of a model is
    charged with its own cost."""
    max_rollouts: Count | None = None

    @classmethod
    def faults(cls, said: Mapping[str, Any]) -> Iterator[str]:
        """Check that there is a limit."""
        limits = [name for name in cls.model_fields if name.startswith("max_")]
        if all(name in said and said[name] is None for name in limits):
            yield f"no limit; give one of {', '.join(limits)}"


class CasesSpec(SpecModel):
    """Cases on which candidates are evaluated."""

    file: Text
    split: Ratio = "3:5:2"
    """Shares of train, holdout and test."""
    seed: int = 0
    stratify: Text | None = None
    """Field of the cases; every split gets its share of each value of it."""
    expected: Text | None = None
    """Field with the expected output; by default one named `expected`, `label` or the like."""
    show_expected: bool = True
    """True if optimizers see the expected output of train cases."""

    @property
    def ratio(self) -> tuple[int, ...]:
        """Shares of the split as numbers."""
        return shares_of(self.split)


class LoggingSpec(SpecModel):
    """Files written from the journal while a run goes on."""

    results_file: Annotated[Text, AfterValidator(_below)] | None = None
    """File with one JSON line per iteration; lines of other runs stay."""
    candidate_dir: Annotated[Text, AfterValidator(_below)] | None = None
    """Folder with a diff of each candidate, and the files of kept candidates."""


class TaskSpec(SpecModel):
    """A whole task.yaml."""

    id: Text | None = None
    description: str = ""
    artifacts: ArtifactsSpec
    mutation: MutationSpec = MutationSpec()
    models: ModelsSpec = ModelsSpec()
    runner: Annotated[SpecModel, RUNNERS]
    scorer: Annotated[SpecModel, SCORERS]
    objective: ObjectiveSpec
    constraints: Annotated[tuple[ConstraintSpec, ...], Field(strict=False)] = ()
    policy: PolicySpec = PolicySpec()
    proposers: (
        Annotated[
            tuple[Annotated[SpecModel, PROPOSERS], ...], Field(strict=False), AfterValidator(some)
        ]
        | None
    ) = None
    schedule: Literal["bandit", "in_turn"] = "bandit"
    """Order of several proposers: by gain per cost, or each in turn."""
    prompts: Annotated[Text, AfterValidator(_below)] | None = None
    """Folder with files that replace Kept's own prompts of the same names, if none is named."""
    gate: Literal["strict", "race", "repeats"] | None = None
    """Gate of the run; by default `race` with enough cases, else `strict`. Without cases it is
    `repeats`, which is `strict` while repeats agree."""
    race: Race | None = None
    guards: GuardsSpec = GuardsSpec()
    budget: BudgetSpec
    logging: LoggingSpec = LoggingSpec()
    cases: CasesSpec | None = None
    sandbox: SandboxSpec = SandboxSpec()
    workers: Count | None = None
    """Rollouts in flight at once; by default 8 for a model behind an API, else one a processor."""
    width: Count | None = None
    """Steps open at once; by default enough to keep the workers busy."""

    @classmethod
    def faults(cls, said: Mapping[str, Any]) -> Iterator[str]:
        """Check that no key is without effect."""
        gate = said.get("gate")
        if said.get("race") is not None and gate in ("strict", "repeats"):
            yield "`race` says how to race, and needs `gate: race`"
        if gate == "repeats" and said.get("cases") is not None:
            yield "`gate: repeats` is for a task without cases: with cases, `race` or `strict`"
        policy, objective = said.get("policy"), said.get("objective")
        if not isinstance(policy, PolicySpec) or not policy.tie_breakers:
            return
        if gate == "repeats":
            yield "`policy.tie_breakers` are of the gates `strict` and `race`"
        races = gate == "race" or said.get("race") is not None
        if races and isinstance(objective, ObjectiveSpec) and objective.bounds is None:
            yield "`policy.tie_breakers` of a race need `objective.bounds`, to tell what is a tie"
