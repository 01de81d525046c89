"""Request of a measurement, and its facts in the journal."""

from dataclasses import dataclass

from kept.recipes.base import Facts, Request
from kept.results.cases import Evaluated


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Selection of cases, and their repeats."""

    repeats: int = 1
    limit: int | None = None
    """Largest number of cases, taken from the first."""
    timeout: float | None = None
    """Time limit in seconds for one case of an agent; None for the agent's own."""
    filter: str = ""
    """Part of a case's name, or a pattern with `*` or `?`; others are skipped."""
    min_score: float | None = None
    """Required mean of the primary metric, in its direction."""
    split: str = ""
    """Split of a skill config; empty for the cases that were never used."""
    output_json: str = ""
    """Path of a skill config's standalone JSON document; empty for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation(Request):
    """Request of a measurement."""

    of: str
    """Name of the recipe whose runner and scorer measure."""
    wanted: Wanted
    folder: str = ""
    """Folder that paths of a skill config are relative to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationFacts(Facts):
    """Facts of a measurement."""

    evaluated: Evaluated
