"""When nothing answers any more: an outage is told after a minute or two, however much is asked.

A race asks for hundreds of rollouts before its first verdict. Where each of them is tried for a
quarter of a minute before it is given up, waiting for verdicts would mean waiting for all of them.
"""

from kept.core.budget import StopReason
from kept.core.rollout import Failure
from kept.core.words import count
from kept.engine.work import Work

TRIALS = 2
"""Rollouts that must show a broken measure, one after the other, before all others are spared."""

NOTHING_ANSWERS = "nothing answers"
"""How the reason to stop begins."""

LONGEST = 90.0
"""Seconds without any answer after which there will be none."""

FEWEST = 3
"""Rollouts that had none by then: a single slow one says nothing."""


class Silence:
    """How long rollouts have had no answer, one after the other."""

    def __init__(self) -> None:
        self.rollouts = 0
        """That had none since the last one that had."""
        self._since = 0.0

    def after(self, work: Work, failure: Failure | None) -> StopReason | None:
        """Why the run must stop after this rollout, which ended; None while it may go on."""
        if failure is None or failure.blame == "candidate":
            self.rollouts = 0
            return None
        self._since = min(self._since, work.started) if self.rollouts else work.started
        self.rollouts += 1
        seconds = work.ended - self._since
        if self.rollouts < FEWEST or seconds < LONGEST:
            return None
        tried = f"{count(self.rollouts, 'rollout')} in {seconds:.0f} s, and not one had an answer"
        return StopReason("error", f"{NOTHING_ANSWERS}: {tried}; the last: {failure.message}")
