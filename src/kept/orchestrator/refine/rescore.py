"""A fresh look at a deliverable: what a run would come to that hands it over at once.

The loss that an iteration ends with is one look by one critic, and has in it how the run went. A
reading has a critic judge the files again and passes them through all checks and metrics, so that
several readings of one deliverable tell how much one of them can be believed.
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
"""What a case is about, where there are cases: the critic judges by it."""

_WHO = "deliverable"
_HANDED_OVER = "Everything that was to be delivered is in the files."


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Implements `kept.core.ports.Runner`."""

    kit: Kit
    task: str
    texts: Mapping[str, str]
    """The prompt artifacts of the runs."""
    closes: Callable[[], None]
    stop: Stop = field(default_factory=Stop)

    async def run(
        self, job: Job, candidate: Candidate, case: Case, scope: Scope
    ) -> Rollout | Failure:
        """Read it once; who cannot read it is no failure of what is read."""
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
            rejections=int(not judged.complete),
            max_rejections=self.kit.limits.rejected_completions,
            budget_remaining=1.0,
            status="complete" if judged.complete else "partial",
        )
        refused = "" if judged.complete else f"; {judged.outcomes[-1].check} refuses it"
        words = f"critic {said.score:g}: {said.summary}{refused}"
        return Rollout(output=words, metrics=measures_of(loss_of(signals).parts()))

    async def close(self) -> None:
        """Let go of what iterations were run with."""
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
            confidence=1.0,  # nobody says: the same for all that are compared
            critiques=((_WHO, said),),
            delegations=(),
            rejections=(),
            limits=self.kit.limits,
            budget=ledger.snapshot(),
            run=self.kit.beside(files),
            texts=self.texts,
        )

    async def _measured(self, submission: Submission, scope: Metered) -> Evaluated | Failure | None:
        """What the metrics say of something that a check before them refused."""
        for check in self.kit.checks[-1:]:
            told = await check(submission, scope.branch("measures"))
            return told if isinstance(told, Failure) else told.evaluation
        return None


def _readers_own(failure: Failure) -> Failure:
    """A failure to read, as that of a scorer: no deliverable's, unless only a challenger has it."""
    return replace(
        failure,
        blame="infrastructure",
        message=f"the reading: {failure.message}",
        # what was said stands in the journal: another try would hear the same
        tried=failure.tried or failure.blame == "candidate",
        scoring=True,
    )


@dataclass(frozen=True, slots=True)
class Readings:
    """What several readings of one deliverable come to."""

    count: int
    parts: Mapping[str, float]
    """Of the mean loss, and the total."""
    squares: float
    """Of deviations from the mean, each case by itself."""
    free: int
    """How many of them could differ."""

    @property
    def loss(self) -> float:
        """The mean."""
        return self.parts["total"]


def readings_of(known: Iterable[Evaluation]) -> Readings | None:
    """All readings of one candidate, whatever each was for; None without any."""
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
        squares=sum(max(0.0, t.squares - t.total * t.total / t.n) for t in cases.values()),
        free=sum(t.n - 1 for t in cases.values()),
    )


@dataclass(frozen=True, slots=True)
class Noise:
    """How much one reading differs from the next of the same deliverable."""

    deviation: float
    """Standard deviation."""
    readings: int

    @property
    def words(self) -> str:
        """For a person."""
        if self.deviation < 1e-9:
            return f"none: {self.readings} readings agree"
        return (
            f"one reading differs from the next by {self.deviation:.4f} "
            f"(standard deviation, {self.readings} readings)"
        )


def noise_of(read: Iterable[Readings | None]) -> Noise | None:
    """From all deliverables that were read; None where none was read twice."""
    known = [one for one in read if one is not None]
    free = sum(one.free for one in known)
    if not free:
        return None
    squares = sum(one.squares for one in known)
    return Noise(round(sqrt(squares / free), 6), sum(one.count for one in known))


def _both(one: Tally | None, two: Tally) -> Tally:
    if one is None:
        return two
    return Tally(
        one.n + two.n, one.total + two.total, one.squares + two.squares, one.failed + two.failed
    )
