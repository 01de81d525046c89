"""What is run before anybody is asked: phases without any model (R33), each of them once."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from kept.core.ports import Scope
from kept.core.rollout import FREE, Failure, Usage
from kept.evaluators.tools.shared_files import SharedFiles, changes_between
from kept.orchestrator.checks.deterministic import DeterministicPhase, PhaseEnd, RunsOn, run_phase
from kept.orchestrator.kit import Kit
from kept.orchestrator.record import Phased
from kept.orchestrator.status import PHASE_FAILED, PHASE_PARTIAL
from kept.orchestrator.story import Moment, Story
from kept.orchestrator.telling import phase_line


@dataclass(frozen=True, slots=True)
class _Left:
    """What one phase came to, as it is journalled: a resume does not run it again."""

    phased: Phased
    changes: Mapping[str, bytes | None] = field(default_factory=dict[str, bytes | None])
    usage: Usage = FREE


async def run_phases(kit: Kit, files: SharedFiles, scope: Scope, story: Story) -> str | Failure:
    """Why the run ends with them; nothing where it goes on. A `Failure` is of infrastructure."""
    if kit.runs_on is None:
        return ""
    for phase in kit.phases:
        left = await _once(phase, kit.runs_on, files, scope.branch(phase.name))
        if isinstance(left, Failure):
            return left
        files.apply(left.changes, files.stamp())
        came = left.phased
        kit.say(phase_line(came))
        await story.tell(partial(Moment, phased=came))
        if came.status != "complete":
            kind = PHASE_FAILED if came.status == "failed" else PHASE_PARTIAL
            return f"{kind}: {came.name}: {came.reason}"
    return ""


async def _once(
    phase: DeterministicPhase, run: RunsOn, files: SharedFiles, scope: Scope
) -> _Left | Failure:
    async def do() -> _Left | Failure:
        end = await run_phase(phase, files.all(), run)
        return end if isinstance(end, Failure) else _left(phase.name, end, files)

    return await scope.call({"phase": phase.name, "command": phase.command}, _Left, do, 0.0)


def _left(name: str, end: PhaseEnd, files: SharedFiles) -> _Left:
    changes = changes_between(files.all(), end.files)
    if why := files.refusal(changes):
        return _Left(Phased(name=name, status="failed", reason=why))
    phased = Phased(name=name, status=end.status, reason=end.reason, written=tuple(sorted(changes)))
    return _Left(phased, changes)
