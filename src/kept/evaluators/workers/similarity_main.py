"""The far end of a likeness that takes long: measures one pair of texts."""

from collections.abc import Mapping
from typing import Any

from kept.evaluators.metrics.config import Measured
from kept.evaluators.metrics.deterministic import likeness


def measure(case: Mapping[str, Any]) -> Measured:
    """What a likeness comes to."""
    return likeness(case["metric"], case["response"], case["truth"])
