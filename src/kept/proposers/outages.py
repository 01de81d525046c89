"""What an outage took of a brief: with nothing to go by, a turn is lost, and comes again."""

from dataclasses import replace

from kept.core.proposal import Brief
from kept.core.rollout import FREE, Failure


def outage_of(brief: Brief) -> Failure | None:
    """Why nothing is known of a batch of which nothing is: what took the first of its rollouts."""
    outcomes = [one for answer in brief.answers for one in answer.outcomes.values()]
    found = (one.failure for one in outcomes if one.failure is not None)
    return next((replace(one, usage=FREE) for one in found if one.blame == "infrastructure"), None)
