"""An iteration of a refinement as the journal of that tells it."""

from kept.agents.record import AgentRun
from kept.agents.refine.rerun import RUN
from kept.agents.story import STORY, Moment, record_of
from kept.core.proposal import proposal_scope
from kept.core.refine import attempts, reruns
from kept.store.reader import Run


def iteration_of(run: Run, run_id: str) -> AgentRun | None:
    """The record of one iteration; None where a refinement has none of that id."""
    found = (one for one in attempts(reruns(run.state)) if one.run_id == run_id)
    attempt = next(found, None)
    if attempt is None:
        return None
    return record_of(run.replies(f"{proposal_scope(attempt.step)}/{RUN}/{STORY}", Moment))
