"""Calls that an earlier sitting paid for, and that this one will hear again instead of making."""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from kept.core.rollout import FREE, Job, Usage


class Past(NamedTuple):
    """What those calls used."""

    billed: dict[Job, Usage]
    """Of rollouts that came to nothing: it is on the bill already."""
    under_way: dict[str, Usage]
    """By scope, of whatever was cut off: nobody has counted it yet."""


def past_of(paid: Mapping[str, Usage], counted: Collection[Job], silent: Collection[str]) -> Past:
    """Calls at hand, with the rollouts that are counted and proposers that have not replied."""
    left = dict(paid)
    billed = {
        job: sum((left.pop(scope) for scope in mine), FREE)
        for job in counted
        if (mine := [scope for scope in left if below(scope, job.scope)])
    }
    under_way = {
        scope: used
        for scope, used in left.items()
        if in_rollout(scope) or any(below(scope, root) for root in silent)
    }
    return Past(billed, under_way)


def in_rollout(scope: str) -> bool:
    """Whether a scope is that of a rollout, or a branch of one."""
    return scope.startswith("rollout/")


def below(scope: str, root: str) -> bool:
    """Whether a scope is this one, or a branch of it."""
    return scope == root or scope.startswith(f"{root}/")
