"""Request of a comparison, and its facts in the journal."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kept.recipes.base import Facts, Request
from kept.results.compare import Compared


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparing(Request):
    """Request of a comparison from the command line; a call from Python has no words."""

    words: tuple[str, ...] = ()
    """The first version, then its challengers."""
    here: str = ""
    """Folder in which the words were typed."""
    cases: str | None = None
    plan: bool = False
    """True to measure only the seed, and estimate what a comparison could show."""
    passes: int | None = None
    least: float | None = None
    commits: Mapping[str, str] = field(default_factory=dict[str, str])
    """Commits of revisions when the run began, by word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonFacts(Facts):
    """Facts of a comparison."""

    compared: Compared
