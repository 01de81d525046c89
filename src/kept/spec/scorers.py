"""What a task may say about scoring.

The models of every kind of scorer, told apart by `type`.
"""

from typing import Literal

from kept.sandbox import TIMEOUT
from kept.spec.base import Model, Seconds, Text


class ParseSpec(Model):
    """Where the score stands in what a scorer prints."""

    format: Literal["json"] = "json"
    score_field: Text | None = None
    """What becomes the primary metric, `result.score` for a nested one; by default the field that
    has the metric's own name."""
    metrics_field: Text = "metrics"
    """An object with the other metrics."""


class CommandScorerSpec(Model):
    """The command that prints the score."""

    type: Literal["command"] = "command"
    command: Text
    cwd: Text = "."
    timeout_seconds: Seconds = TIMEOUT
    parse: ParseSpec = ParseSpec()


ScorerSpec = CommandScorerSpec
