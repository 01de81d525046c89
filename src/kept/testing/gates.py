"""Gates that do not look: what a test of a run must be able to tell from a real one."""

from dataclasses import dataclass

from kept.core.proposal import Ask
from kept.core.verdict import Verdict, View
from kept.gates.baseline import measured
from kept.gates.common import asks_for


@dataclass(frozen=True, slots=True)
class AcceptAll:
    """Keeps whatever is proposed, once it has been measured."""

    name: str = "accept-all"

    def decide(self, view: View) -> Verdict | tuple[Ask, ...]:
        """Keep."""
        sides = (view.incumbent, view.challenger)
        return asks_for(sides, view.holdout, 1, "decide") or Verdict("keep", "kept", best=True)

    def most_asked(self, train: int, holdout: int) -> int:
        """Most rollouts that a step adds."""
        return holdout

    def measure(self, view: View) -> Verdict | tuple[Ask, ...]:
        """The seed on all cases, once."""
        return _measured(view)


@dataclass(frozen=True, slots=True)
class RejectAll:
    """Discards whatever is proposed, once it has been measured."""

    name: str = "reject-all"

    def decide(self, view: View) -> Verdict | tuple[Ask, ...]:
        """Discard."""
        sides = (view.incumbent, view.challenger)
        return asks_for(sides, view.holdout, 1, "decide") or Verdict("discard", "discarded")

    def most_asked(self, train: int, holdout: int) -> int:
        """Most rollouts that a step adds."""
        return holdout

    def measure(self, view: View) -> Verdict | tuple[Ask, ...]:
        """The seed on all cases, once."""
        return _measured(view)


def _measured(view: View) -> Verdict | tuple[Ask, ...]:
    return asks_for((view.challenger,), view.holdout, 1, "decide") or measured(view)
