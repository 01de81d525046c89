"""Independent readings of a deliverable: loss of a run that would hand it over at once.

The loss at the end of an iteration is one opinion of one critic, and depends on how the run went.
A reading has a critic assess the files again and repeats all checks and metrics. So several
readings of one deliverable show the noise of one reading.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import sqrt

from kept.core.artifact import Candidate
from kept.core.case import Case
from kept.core.ports import Scope
from kept.core.rollout import Failure, Job, Rollout
from kept.core.score import Evaluation, Tally
from kept.evaluators.tools.files import OUTPUT, SharedFiles
from kept.orchestrator.budget import Ledger, Metered
from kept.orchestrator.checks.base import Submission
from kept.orchestrator.checks.chain import judge
from kept.orchestrator.completion import criticise
from kept.orchestrator.loss import Signals, loss_of
from kept.orchestrator.record import Critique, Delegation, Evaluated, Subtask
from kept.orchestrator.refine.attempt import LOSS, made_of, measures_of
from kept.orchestrator.toolkit import Errand, Kit, Worked
from kept.orchestrator.workers import Stop, Stoppable

CRITERION = "criterion"
"""Kind of the cases of a race: each is a criterion for the critic."""

_WHO = "deliverable"
_HANDED_OVER = "Everything that was to be delivered is in the files."


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Runner that reads a deliverable; implements `kept.core.ports.Runner`."""

    kit: Kit
    task: str
    texts: Mapping[str, str]
    """Prompt artifacts of the runs."""
    closes: Callable[[], None]
    stop: Stop = field(default_factory=Stop)

    async def run(
        self, job: Job, candidate: Candidate, case: Case, scope: Scope
    ) -> Rollout | Failure:
        """Read the deliverable once; a failed reading does not count against the deliverable."""
        read = await self._read(candidate, case, scope)
        return _readers_own(read) if isinstance(read, Failure) else read

    async def _read(self, candidate: Candidate, case: Case, scope: Scope) -> Rollout | Failure:
        files = made_of(candidate.texts).files
        ledger = Ledger(self.kit.limits)
        (account,) = ledger.open()
        metered = Metered(Stoppable(scope, self.stop), account)
        said = await self._criticised(files, case, metered.branch("critic"))
        if isinstance(said, Failure):
            return said
        submission = self._submission(files, said, ledger)
        judged = await judge(submission, metered.branch("checks"), self.kit.checks)
        if isinstance(judged.refusal, Failure):
            return judged.refusal
        measured = judged.evaluation or await self._measured(submission, metered)
        if isinstance(measured, Failure):
            return measured
        signals = Signals(
            eval_score=measured.score if measured else None,
            critique_score=said.score,
            # as if the run had handed it over at once: at most one refusal, no budget used
            rejections=int(not judged.complete),
            max_rejections=self.kit.limits.rejected_completions,
            budget_remaining=1.0,
            status="complete" if judged.complete else "partial",
        )
        refused = "" if judged.complete else f"; {judged.outcomes[-1].check} refuses it"
        words = f"critic {said.score:g}: {said.summary}{refused}"
        return Rollout(output=words, metrics=measures_of(loss_of(signals).parts()))

    async def close(self) -> None:
        """Release the resources of the readings."""
        self.closes()

    async def _criticised(
        self, files: Mapping[str, bytes], case: Case, scope: Metered
    ) -> Critique | Failure:
        written = {f"{OUTPUT}/{path}": data for path, data in files.items()}
        criteria = (case.data,) if isinstance(case.data, str) else ()
        subtask = Subtask(id=_WHO, description=self.task, success_criteria=criteria)
        errand = Errand(
            delegation=Delegation(worker_id=_WHO, subtask_id=_WHO, instructions=_HANDED_OVER),
            subtask=subtask,
            files=SharedFiles(),
            texts={**self.kit.prompts, **self.texts},
            before="",
            held={path: len(data) for path, data in written.items()},
        )
        return await criticise(self.kit, errand, Worked(result={}, written=written), scope)

    def _submission(self, files: Mapping[str, bytes], said: Critique, ledger: Ledger) -> Submission:
        return Submission(
            task=self.task,
            plan=(),
            files=files,
            previous={},
            final_result={"files": sorted(files)},
            confidence=1.0,  # no manager reports one: a constant for all candidates
            critiques=((_WHO, said),),
            delegations=(),
            rejections=(),
            limits=self.kit.limits,
            budget=ledger.snapshot(),
            run=self.kit.beside(files),
            texts=self.texts,
        )

    async def _measured(self, submission: Submission, scope: Metered) -> Evaluated | Failure | None:
        """Run the last check, the metrics, on files that an earlier check refused."""
        for check in self.kit.checks[-1:]:
            told = await check(submission, scope.branch("measures"))
            return told if isinstance(told, Failure) else told.evaluation
        return None


def _readers_own(failure: Failure) -> Failure:
    """Mark a failed reading as one of the scorer, so that the deliverable is not blamed."""
    return replace(
        failure,
        blame="infrastructure",
        message=f"the reading: {failure.message}",
        # the reply is journalled: another try would get the same
        tried=failure.tried or failure.blame == "candidate",
        scoring=True,
    )


@dataclass(frozen=True, slots=True)
class Readings:
    """Summary of several readings of one deliverable."""

    count: int
    parts: Mapping[str, float]
    """Mean parts of the loss, and the mean total."""
    squares: float
    """Sum of squared deviations from the mean of each case."""
    free: int
    """Degrees of freedom: readings minus cases."""

    @property
    def loss(self) -> float:
        """Mean loss."""
        return self.parts["total"]


def readings_of(known: Iterable[Evaluation]) -> Readings | None:
    """Combine all readings of one candidate, whatever their purpose; None if there are none."""
    cases: dict[str, Tally] = {}
    sums: dict[str, Tally] = {}
    for one in known:
        for name, tally in one.cases.items():
            cases[name] = _both(cases.get(name), tally)
        for name, tally in one.metrics.items():
            sums[name] = _both(sums.get(name), tally)
    if LOSS not in sums or not sums[LOSS].n:
        return None
    parts = {name.removeprefix(f"{LOSS}_"): round(t.mean, 6) for name, t in sums.items()}
    parts["total"] = parts.pop(LOSS)
    return Readings(
        count=sums[LOSS].n,
        parts=parts,
        # sum of squares minus n times the squared mean; rounding may make it negative
        squares=sum(max(0.0, t.squares - t.total * t.total / t.n) for t in cases.values()),
        free=sum(t.n - 1 for t in cases.values()),
    )


@dataclass(frozen=True, slots=True)
class Noise:
    """Spread between readings of the same deliverable."""

    deviation: float
    """Pooled standard deviation of one reading."""
    readings: int

    @property
    def words(self) -> str:
        """Text for people."""
        if self.deviation < 1e-9:
            return f"none: {self.readings} readings agree"
        return (
            f"one reading differs from the next by {self.deviation:.4f} "
            f"(standard deviation, {self.readings} readings)"
        )


def noise_of(read: Iterable[Readings | None]) -> Noise | None:
    """Estimate the noise from all deliverables; None if none was read twice."""
    known = [one for one in read if one is not None]
    free = sum(one.free for one in known)
    if not free:
        return None
    squares = sum(one.squares for one in known)
    # pooled over all deliverables: within-case squares by degrees of freedom
    return Noise(round(sqrt(squares / free), 6), sum(one.count for one in known))


def _both(one: Tally | None, two: Tally) -> Tally:
    if one is None:
        return two
    return Tally(
        one.n + two.n, one.total + two.total, one.squares + two.squares, one.failed + two.failed
    )
