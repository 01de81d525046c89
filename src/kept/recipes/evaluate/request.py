"""What a measurement was asked for, and what a journal holds of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kept.recipes.base import Facts, Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which cases, and how often."""

    repeats: int = 1
    limit: int | None = None
    """The first so many of those that are meant."""
    timeout: float | None = None
    """Seconds for one case of an agent; None leaves it to the agent."""
    filter: str = ""
    """Only cases whose name has this in it, or fits it where it is a pattern with `*` or `?`."""
    min_score: float | None = None
    """The mean of the primary metric that the command requires, in its direction."""
    split: str = ""
    """Of a skill config: which cases are meant; empty for those that nobody has seen."""
    output_json: str = ""
    """Of a skill config: the document of a standalone script that is written; empty for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation(Request):
    """What is measured."""

    of: str
    """The recipe whose runner and scorer measure."""
    wanted: Wanted
    folder: str = ""
    """Of a skill config: where it was asked, and paths begin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationFacts(Facts):
    """What a measurement goes by."""

    name: str
    """Of what is measured."""
    rollouts: int
    cases: tuple[str, ...]
    """Ids of the cases, in order."""
    metric_is_pass: bool = False
    """Whether the metric itself says that a case passes."""
    agent: Mapping[str, object] = field(default_factory=dict[str, object])
    """Of an agent or a student: its model and what it has."""
