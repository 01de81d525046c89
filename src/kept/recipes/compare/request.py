"""What a comparison was asked for, and what a journal holds of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kept.recipes.base import Facts, Request
from kept.results.compare import Compared


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparing(Request):
    """What is to be compared, as the command line says it; a call from Python has no words."""

    words: tuple[str, ...] = ()
    """A, then its challengers."""
    here: str = ""
    """Where the words were typed."""
    cases: str | None = None
    plan: bool = False
    """Whether only the seed is measured, to say what a comparison could show."""
    passes: int | None = None
    least: float | None = None
    commits: Mapping[str, str] = field(default_factory=dict[str, str])
    """What revisions were when the run began, by word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonFacts(Facts):
    """What a comparison goes by."""

    compared: Compared
