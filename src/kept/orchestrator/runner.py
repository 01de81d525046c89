"""Agent runs as a `Runner`: candidate texts on the task of a case, and their score.

All of it is journalled in the scope of the execution: inputs, calls, moments and the deliverable.
A resume starts over with an empty workspace, and is served from the journal up to the first
missing reply. With several tasks, each has a runner with its own toolkit. The score is the run's
own measure, with its defects as findings.
"""

import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace

from kept.core.artifact import Candidate
from kept.core.case import Case
from kept.core.ports import Scope
from kept.core.rollout import FREE, Failure, Job, Rollout, TraceItem, Usage
from kept.core.score import Finding, Score, Severity
from kept.evaluators.tools.files import OUTPUT, SharedFiles
from kept.orchestrator.budget import AXES, COMPLETED, FAILED, is_limit, most, status_of
from kept.orchestrator.events import Ended, Hearer, Moment, Story, raised_line, record_of
from kept.orchestrator.loop import Loop
from kept.orchestrator.record import AgentRun, Critique, Deliverable
from kept.orchestrator.refine.attempt import findings_in
from kept.orchestrator.state import Assignment, Course
from kept.orchestrator.toolkit import Kit, run_phases
from kept.orchestrator.workers import Stop, Stoppable

INPUT = "input"
"""Folder of the workspace with the input files of the task."""

FINDING = "finding"
"""Role of a run's findings in its trace."""

DELIVERED = "delivered"
"""Branch of a run's scope with its deliverable."""


@dataclass(frozen=True, slots=True)
class Given:
    """Input files of a task, read once and journalled."""

    files: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    usage: Usage = FREE


AssignmentOf = Callable[[Case], Assignment]
"""Function that returns the assignment of a case, without its files."""

FilesOf = Callable[[Case], Mapping[str, bytes]]
"""Function that reads the files of a case; called once in the life of a run."""

Measures = Callable[[AgentRun], Mapping[str, float]]


def _let_it_be(reason: str) -> None:
    """Accept the limit: the default if the run cannot be continued."""


class _NotRaisedError(Exception):
    """The limit was not raised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRunner:
    """Runner of agent runs; implements `kept.core.ports.Runner`."""

    kit: Kit
    assignment_of: AssignmentOf
    files_of: FilesOf
    measures: Measures
    closes: Callable[[], Awaitable[None]]
    limited: Callable[[str], None] = _let_it_be
    """Called with the limit that ended a run; may raise to leave the run open."""
    hear: Hearer | None = None
    stop: Stop = field(default_factory=Stop)

    async def run(
        self, job: Job, candidate: Candidate, case: Case, scope: Scope
    ) -> Rollout | Failure:
        """Run the task once, to its end; a `Failure` is one of infrastructure."""
        scope = Stoppable(scope, self.stop)
        given = await self._given(case, scope)
        if isinstance(given, Failure):
            return given
        assignment = replace(self.assignment_of(case), inputs=given.files)
        files = SharedFiles()
        files.apply({f"{INPUT}/{path}": data for path, data in given.files.items()}, files.stamp())
        story = Story(scope, self.hear)
        await story.tell(lambda: Moment(began=self._began(assignment)))
        texts = {**self.kit.prompts, **candidate.texts}
        loop = Loop(self.kit, texts, assignment, files, scope)
        loop.story = story
        # numbers the continuations after a raised limit, so that each journals its own deliverable
        sitting = 0
        delivered = await self._to_its_end(loop, story, files, scope, sitting)
        while not isinstance(delivered, Failure) and await self._raised(loop, story):
            sitting += 1
            delivered = await self._to_its_end(loop, story, files, scope, sitting)
        if isinstance(delivered, Failure):
            return delivered
        record = record_of(story.moments)
        assert record is not None, "a run that has ended has begun"
        if is_limit(record.reason):
            self.limited(record.reason)
        # the journal holds the files alone; output and metrics follow from the moments
        return delivered._replace(
            output=json.dumps(record.final_result, ensure_ascii=False, default=str),
            metrics=self.measures(record),
            trace=_trace(record),
        )

    async def _to_its_end(
        self, loop: Loop, story: Story, files: SharedFiles, scope: Scope, sitting: int
    ) -> Rollout | Failure:
        reason: str | Failure = ""
        if not sitting:
            reason = await run_phases(self.kit, files, scope.branch("phases"), story)
        reason = reason or await loop.run()
        if isinstance(reason, Failure):
            return reason
        delivered = await self._deliver(files, scope, sitting)
        if not isinstance(delivered, Failure):
            await story.tell(lambda: Moment(ended=self._ended(reason, loop, delivered.files)))
        return delivered

    async def _raised(self, loop: Loop, story: Story) -> bool:
        """Raise the limits if the one that ended the run is higher now; True if raised.

        A raise by an earlier session is read from the journal.
        """
        ended = story.moments[-1].ended
        if ended is None or (axis := AXES.get(ended.reason)) is None:
            return False
        more, limits = self.kit.raised, loop.ledger.limits

        # called only if the journal holds no further moment: then the limits now decide
        def make() -> Moment:
            if more is None or most(more, axis) <= most(limits, axis):
                raise _NotRaisedError
            return Moment(raised=more)

        try:
            moment = await story.tell(make)
        except _NotRaisedError:
            return False
        assert moment.raised is not None, "nothing else follows an end"
        loop.raise_to(moment.raised)
        self.kit.say(raised_line(limits, moment.raised))
        return True

    async def close(self) -> None:
        """Release scratch folders and other resources."""
        await self.closes()

    async def _given(self, case: Case, scope: Scope) -> Given | Failure:
        async def read() -> Given | Failure:
            try:
                return Given(self.files_of(case))
            except OSError as error:
                message = f"cannot read `{error.filename}`: {error.strerror}"
                return Failure("harness", "infrastructure", message)

        return await scope.branch(INPUT).call({"inputs": case.id}, Given, read, 0.0)

    async def _deliver(self, files: SharedFiles, scope: Scope, sitting: int) -> Rollout | Failure:
        """Journal the output folder as the result of the run."""

        async def gather() -> Rollout:
            return Rollout(files=files.below(OUTPUT))

        return await scope.branch(DELIVERED).call(
            {"delivered": sitting or True}, Rollout, gather, 0.0
        )

    def _began(self, assignment: Assignment) -> AgentRun:
        kit = self.kit
        return AgentRun(
            run_id=assignment.run_id,
            task=assignment.task,
            models=kit.models,
            limits=kit.limits,
            started=kit.clock.time(),
            inputs=tuple(sorted(assignment.inputs)),
            parent_run_id=assignment.parent_run_id,
            tags=assignment.tags,
        )

    def _ended(self, reason: str, loop: Loop, files: Mapping[str, bytes]) -> Ended:
        course = loop.course
        declared = {path for one in course.plan for path in one.required_outputs}
        deliverables = tuple(
            Deliverable(
                path=path,
                bytes=len(data),
                sha256=hashlib.sha256(data).hexdigest(),
                declared=path in declared,
            )
            for path, data in files.items()
        )
        end = course.end
        words = end.reason if reason == FAILED and end is not None and end.reason else ""
        return Ended(
            # reasons of phases carry details after a colon
            status=status_of(reason.partition(":")[0], delivered=any(files.values())),
            reason=f"{reason}: {words}" if words else reason,
            t=self.kit.clock.time(),
            budget=loop.ledger.snapshot(),
            deliverables=deliverables,
            critique=_critique(course),
            final_result=dict(end.final_result) if end else {},
            confidence=end.confidence if end and reason == COMPLETED else None,
            used=loop.ledger.usage,
        )


def _critique(course: Course) -> Critique | None:
    """Combine the critiques of the work that stands; None if there are none."""
    said = [one.critique for one in course.standing() if one.critique is not None]
    if not said:
        return None
    return Critique(
        score=sum(one.score for one in said) / len(said),
        defects=tuple(defect for one in said for defect in one.defects),
        prescriptions=tuple(words for one in said for words in one.prescriptions),
        summary=" ".join(one.summary for one in said if one.summary),
    )


def _trace(record: AgentRun) -> tuple[TraceItem, ...]:
    """Return a short trace of the run; its moments have all details."""
    turns = [
        TraceItem("turn", f"{one.number}: {one.decision.kind if one.decision else 'no decision'}")
        for one in record.iterations
    ]
    wrong = findings_in(record, 0.0).told()
    return (
        TraceItem("user", record.task),
        *turns,
        TraceItem("info", f"{record.status}: {record.reason}"),
        *(TraceItem(FINDING, text, {"severity": severity}) for text, severity in wrong),
    )


@dataclass(frozen=True, slots=True)
class ByTask:
    """Runner for several tasks, by case id; implements `kept.core.ports.Runner`."""

    runners: Mapping[str, AgentRunner]
    closes: Callable[[], None]
    stop: Stop
    """Stop request shared with the run: calls in progress finish, and no new ones start."""

    async def run(
        self, job: Job, candidate: Candidate, case: Case, scope: Scope
    ) -> Rollout | Failure:
        """Run the task of the case once."""
        return await self.runners[case.id].run(job, candidate, case, scope)

    async def close(self) -> None:
        """Release what all runners share."""
        self.closes()


_SEVERITIES: dict[str, Severity] = {"critical": "high", "warning": "medium", "info": "low"}


class FoundScorer:
    """Scorer by the run's own measures; implements `kept.core.ports.Scorer`."""

    async def score(
        self, job: Job, rollout: Rollout, candidate: Candidate, case: Case, scope: Scope
    ) -> Score | Failure:
        """Return the rollout's own measures, and the findings of its trace."""
        found = [
            Finding(item.text, _SEVERITIES.get(str(item.data.get("severity")), "medium"))
            for item in rollout.trace
            if item.role == FINDING
        ]
        return Score(rollout.metrics, tuple(found))

    async def close(self) -> None:
        """Do nothing: no resources are held."""
