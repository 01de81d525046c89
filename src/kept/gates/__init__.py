"""Gates: pure rules that say whether a challenger is better than the incumbent."""

from kept.gates.follow import Follow
from kept.gates.selection import Selection
from kept.gates.sigma import Sigma
from kept.gates.strict import Strict

__all__ = ["Follow", "Selection", "Sigma", "Strict"]
