"""Who is next among the proposers of a run."""

from collections.abc import Sequence
from typing import Literal

from kept.core.ports import Proposer, Schedule
from kept.core.schedules.bandit import Bandit
from kept.core.schedules.schedule import Pooling, RoundRobin
from kept.proposers.variants import Variants

ScheduleName = Literal["bandit", "in_turn"]


def schedule_name(schedule: Schedule) -> ScheduleName:
    """How the proposers of a run have their turns."""
    inner = schedule.inner if isinstance(schedule, Pooling) else schedule
    return "bandit" if isinstance(inner, Bandit) else "in_turn"


def schedule_of(proposers: Sequence[Proposer], name: ScheduleName, seed: int) -> Schedule:
    """The schedule of that name; where there is nobody to choose between, in turn."""
    names = tuple(proposer.name for proposer in proposers)
    given = frozenset(one.name for one in proposers if isinstance(one, Variants))
    if name == "in_turn" or len(names) < 2 or len(given) == len(names):
        return RoundRobin(names)
    return Bandit(names, seed, given)
