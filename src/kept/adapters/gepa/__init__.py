"""Adapter for users who have a `GEPAAdapter`, or an evaluator for `optimize_anything`.

The calls of gepa 0.1.4, executed as runs of Kept. gepa is imported only if a call names no
adapter.
"""

from kept.adapters.gepa.api import Result, evaluator, optimize, optimize_anything

__all__ = ["Result", "evaluator", "optimize", "optimize_anything"]
