"""What is measured of a deliverable: the usual, and tests of the user's own."""

from kept.orchestrator.checks.evaluation import USUAL, ByCommand, Evaluation
from kept.recipes.agent_run.spec import AgentRunSpec


def evaluation_of(spec: AgentRunSpec) -> Evaluation:
    """The last check of a completion."""
    own = (
        ByCommand(name, tuple(one.command), one.weight, one.threshold, one.seconds)
        for name, one in spec.metrics.items()
    )
    return Evaluation((*USUAL, *own))
