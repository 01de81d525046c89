"""The losses of one side of a comparison, pair by pair, and what every look makes of them.

Nobody changes them once they are made: the incumbent's are met by one challenger after the other,
and are summed up once.
"""

from collections.abc import Mapping
from functools import cached_property

from kept.core.rollout import Pair


class Answers(dict[Pair, float]):
    """The loss of every pair that has an answer."""

    @cached_property
    def by_case(self) -> Mapping[str, float]:
        """Each case's mean, in the order in which the cases were first answered."""
        rows: dict[str, list[float]] = {}
        for (case, _), loss in self.items():
            row = rows.get(case)
            if row is None:
                rows[case] = [loss]
            else:
                row.append(loss)
        return {case: sum(row) / len(row) for case, row in rows.items()}

    @cached_property
    def spread(self) -> float:
        """Standard deviation of one answer, over cases and repeats; 0 of fewer than two."""
        if len(self) < 2:
            return 0.0
        losses = [*self.values()]
        mean = sum(losses) / len(losses)
        return (sum([(loss - mean) ** 2 for loss in losses]) / len(losses)) ** 0.5

    @cached_property
    def alike(self) -> bool:
        """Whether no case has given two different answers."""
        seen: dict[str, float] = {}
        return all(seen.setdefault(case, loss) == loss for (case, _), loss in self.items())


NO_ANSWERS = Answers()
"""Of a side that was not asked."""
