"""For those who have a `GEPAAdapter`, or an evaluator for `optimize_anything`.

The calls of gepa 0.1.4, answered by a run of Kept. gepa itself is needed only where a call names no
adapter, and is imported then.
"""

from kept.adapters.gepa.api import Result, evaluator, optimize, optimize_anything

__all__ = ["Result", "evaluator", "optimize", "optimize_anything"]
