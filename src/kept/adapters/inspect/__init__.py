"""Adapter for users who have an Inspect task: its samples are cases, and its scorers score.

Written for inspect_ai 0.3.285, which is imported when a call is made.
"""

from kept.adapters.inspect.api import optimize

__all__ = ["optimize"]
