"""Recipes: each compiles one kind of spec into a plan."""

from dataclasses import dataclass

from kept.core.plan import Plan


@dataclass(frozen=True, slots=True)
class Compiled:
    """A spec, understood."""

    plan: Plan
    warnings: tuple[str, ...] = ()
    """What is allowed but should be known before a run."""
