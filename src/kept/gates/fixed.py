"""A race on cases that are all that is asked about (docs/decisions/0062).

What is kept is better on these very cases, beyond the noise of their draws, and nothing is said of
others: so there is no screen by them, nothing to prove, and a keep is the best at once.
"""

from dataclasses import dataclass, fields
from typing import ClassVar

from kept.core.verdict import Verdict, View
from kept.gates.case_level import case_gains, sign_test
from kept.gates.common import forbidden
from kept.gates.race import Race


@dataclass(frozen=True, slots=True)
class FixedRace(Race):
    """The race, without its questions about other cases."""

    sure: int = 5
    """Passes of both sides that must agree where there is no noise: luck of coins that fall alike
    would be one keep in a hundred runs."""
    fixed: ClassVar[bool] = True

    @classmethod
    def of(cls, race: Race) -> "FixedRace":
        """With the figures of a race."""
        return cls(**{one.name: getattr(race, one.name) for one in fields(Race)})

    def _without_noise(self, view: View, numbers: dict[str, float]) -> Verdict | None:
        """What every repeat says is so, once there are enough of them; None while there are not."""
        gain = numbers["gain"]
        if gain > 0 and view.challenger.known["decide"].asked < self.sure * len(view.holdout):
            return None
        better, worse, _ = sign_test(case_gains(view, "decide", view.incumbent))
        words = f"gain {gain:+.3f}, {better} cases better, {worse} worse, no noise"
        if gain <= 0:
            return Verdict("discard", f"not better: {words}", numbers=numbers)
        kept = Verdict("keep", f"better: {words}", best=True, numbers=numbers)
        return forbidden(view.challenger.known["decide"], view.objective, numbers) or kept
