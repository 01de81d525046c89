"""What a task may say about a race: a preset, and any of the figures that `kept check` shows."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from kept.gates._pairs import TENURE
from kept.spec.base import Count, Finite, Model

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
"""More of them would be draws of the next incumbent's time."""

Looks = Annotated[tuple[Passes, ...], Field(strict=False), AfterValidator(_rising)]
Step = Annotated[tuple[Count, Finite], Field(strict=False)]
Steps = Annotated[tuple[Step, ...], Field(strict=False), AfterValidator(_steps)]
"""Draws, and the gain that they must show."""


class ScreenSpec(Model):
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


class SimplifySpec(Model):
    """Figures of the test of what is simpler."""

    margin: Annotated[Finite, AfterValidator(_part)] | None = None
    """Share of the scale that a simplification may lose."""
    alpha: Chance | None = None
    most: Passes | None = None
    patience: Positive | None = None
    hope: Chance | None = None
    screen: Looks | None = None


class FinalSpec(Model):
    """Figures of the final among alternatives."""

    most: Annotated[int, Field(ge=0)] | None = None
    """Alternatives that it is held among, at most; 0 for none."""
    passes: Looks | None = None
    behind: Chance | None = None


class RaceSpec(Model):
    """How a race is held; a word alone is its preset."""

    preset: Literal["fast", "balanced", "careful"] = "balanced"
    """How much it spends on being sure."""
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
        """The figures that the task sets itself."""
        found = self.model_dump(exclude={"preset"}, exclude_none=True)
        return {name: value for name, value in found.items() if value != {}}


def _preset(value: object) -> object:
    # `race: careful` for short
    return {"preset": value} if isinstance(value, str) else value


Race = Annotated[RaceSpec, BeforeValidator(_preset)]
