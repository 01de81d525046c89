"""Gates: pure rules that say whether a challenger is better than the incumbent.

Names are loaded at first use: a run has one gate.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kept.gates.follow import Follow
    from kept.gates.selection import Selection
    from kept.gates.sigma import Sigma
    from kept.gates.strict import Strict

__all__ = ["Follow", "Selection", "Sigma", "Strict"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'kept.gates' has no attribute {name!r}")
    return getattr(import_module(f"kept.gates.{name.lower()}"), name)
