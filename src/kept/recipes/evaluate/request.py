"""What a measurement was asked for, and what a journal holds of it."""

from dataclasses import dataclass

from kept.recipes.base import Facts, Request
from kept.results.cases import Evaluated


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

    evaluated: Evaluated
