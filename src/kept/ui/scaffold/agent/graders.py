"""Functions that grade an answer: each gets what there is to know of it, and returns a score."""

from typing import Protocol


class Answered(Protocol):
    """What a grader is given; more of it is on the page about metrics."""

    agent_response: str


def short(context: Answered) -> bool:
    """Whether the answer is no longer than it needs to be."""
    return len(context.agent_response) <= 60
