"""Agent runs of several tasks behind one `Runner`: each task has a runner with its own kit."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kept.core.artifact import Candidate
from kept.core.case import Case
from kept.core.ports import Scope
from kept.core.rollout import Failure, Job, Rollout
from kept.orchestrator.runner import AgentRunner
from kept.orchestrator.stopping import Stop


@dataclass(frozen=True, slots=True)
class ByTask:
    """Implements `kept.core.ports.Runner`; cases are known by the names of their tasks."""

    runners: Mapping[str, AgentRunner]
    closes: Callable[[], None]
    stop: Stop
    """Whoever asks a run to stop calls this as well: what was sent is answered, nothing else."""

    async def run(
        self, job: Job, candidate: Candidate, case: Case, scope: Scope
    ) -> Rollout | Failure:
        """Run the task of the case once."""
        return await self.runners[case.id].run(job, candidate, case, scope)

    async def close(self) -> None:
        """Let go of what all of them share."""
        self.closes()
