"""Adapter for users who have a `dspy.Module`, a metric and examples.

Written for dspy 3.4, which is imported when a call is made.
"""

from kept.adapters.dspy.api import Optimizer, optimize

__all__ = ["Optimizer", "optimize"]
