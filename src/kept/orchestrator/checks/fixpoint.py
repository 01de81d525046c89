"""Rule R35: repairs that change nothing any more are stopped.

A repair is held against the attempt before it. Where the two are all but the same, another one
would be paid for nothing, and the subtask has failed.
"""

from collections.abc import Sequence
from typing import NamedTuple

from kept.orchestrator.checks.simhash import alike

SAME = 0.95
"""Likeness of two attempts in a row from which on the repairs have come to rest."""

FIXPOINT = "repair_fixpoint_detected"
"""What a subtask says that failed by it."""


class Fixpoint(NamedTuple):
    """Where repairs came to rest."""

    likeness: float
    attempt: int
    """Which one said what the one before it had said; the first is 1."""


def fixpoint(attempts: Sequence[str]) -> Fixpoint | None:
    """Where the latest two attempts are the same; None while repairs still move."""
    if len(attempts) < 2:
        return None
    found = alike(attempts[-2], attempts[-1])
    return Fixpoint(found, len(attempts)) if found >= SAME else None
