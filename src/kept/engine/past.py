"""Calls that an earlier sitting paid for, and that this one will hear again instead of making."""

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple, cast

from kept.core.rollout import FREE, Job, Purpose, Usage


class Past(NamedTuple):
    """What those calls used."""

    billed: dict[Job, Usage]
    """Of rollouts that came to nothing: it is on the bill already."""
    under_way: dict[str, Usage]
    """By scope, of whatever was cut off: nobody has counted it yet."""


def past_of(paid: Mapping[str, Usage], counted: Collection[Job], silent: Collection[str]) -> Past:
    """Calls at hand, with the rollouts that are counted and proposers that have not replied."""
    roots = {job.scope: job for job in counted}
    billed, under_way = dict[Job, Usage](), dict[str, Usage]()
    for scope, used in paid.items():
        job = next((roots[root] for root in _roots(scope) if root in roots), None)
        if job is not None:
            billed[job] = billed.get(job, FREE) + used
        elif in_rollout(scope) or any(below(scope, root) for root in silent):
            under_way[scope] = used
    return Past(billed, under_way)


def job_of(scope: str, cases: Collection[str]) -> Job | None:
    """The rollout of a scope, or of a branch of one; None where its case is not among these."""
    if not in_rollout(scope):
        return None
    _, candidate, purpose, *rest = scope.split("/")
    for at in range(len(rest) - 1, 0, -1):  # the name of a case may have slashes
        case, repeat = "/".join(rest[:at]), rest[at]
        if case in cases and repeat.isdecimal():
            return Job(candidate, case, int(repeat), cast("Purpose", purpose))
    return None


def _roots(scope: str) -> Iterator[str]:
    """A scope and those that it is a branch of, longest first."""
    while scope:
        yield scope
        scope = scope.rpartition("/")[0]


def in_rollout(scope: str) -> bool:
    """Whether a scope is that of a rollout, or a branch of one."""
    return scope.startswith("rollout/")


def below(scope: str, root: str) -> bool:
    """Whether a scope is this one, or a branch of it."""
    return scope == root or scope.startswith(f"{root}/")
