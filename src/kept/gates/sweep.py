"""The sweep: every case, so many times, and what came of it. Nothing is compared or decided."""

from dataclasses import dataclass

from kept.core.proposal import Ask
from kept.core.rollout import Pair, Purpose
from kept.core.verdict import Verdict, View
from kept.gates._pairs import missing_asks

PURPOSE: Purpose = "measure"


@dataclass(frozen=True, slots=True)
class Sweep:
    """Has the seed measured on every case of the holdout."""

    repeats: int = 1
    name: str = "sweep"

    def decide(self, view: View) -> Verdict | tuple[Ask, ...]:
        """There is nothing to decide: a challenger would be measured as the seed is."""
        return self.measure(view)

    def measure(self, view: View) -> Verdict | tuple[Ask, ...]:
        """All cases once, then all of them again."""
        pairs = tuple(Pair(case, repeat) for repeat in range(self.repeats) for case in view.holdout)
        if asks := missing_asks(((view.challenger, pairs),), PURPOSE):
            return asks
        known = view.challenger.known[PURPOSE]
        numbers: dict[str, float] = {
            "asked": known.asked,
            "missing": known.missing,
            "failed": known.failed,
        }
        if known.loss is not None:
            numbers["value"] = view.objective.value(known.loss)
        words = f"{known.asked - known.missing - known.failed} of {known.asked} rollouts scored"
        return Verdict("skip", words, "measured", numbers=numbers, private=known.first_failure)

    def most_asked(self, train: int, holdout: int) -> int:
        """Most rollouts that a step adds."""
        return self.repeats * holdout
