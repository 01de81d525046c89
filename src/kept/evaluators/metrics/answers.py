"""Answers of a skill measured by the metrics of agent tests.

`hard` is whether all of them pass, `soft` is their mean: what training decides by.
"""

from collections.abc import Callable, Mapping
from statistics import fmean

from kept.core.artifact import Candidate
from kept.core.case import Case
from kept.core.exchange import PASSED, answered, failure_of
from kept.core.ports import Scope
from kept.core.rollout import Failure, Job, Rollout, TraceItem
from kept.core.score import Score
from kept.evaluators.metrics.dialogue import DialogueScorer

CaseOf = Callable[[Case], Mapping[str, object]]
"""A case as agent tests have one: `input`, `ground_truth`, `retrieval_context`."""

VERIFICATION = "verification"


class AnswerScorer:
    """Implements `kept.core.ports.Scorer` on the answer of a rollout."""

    def __init__(
        self, inner: DialogueScorer, case_of: CaseOf, answer_of: Callable[[str], str | Failure]
    ) -> None:
        self._inner = inner
        self._case_of = case_of
        self._answer_of = answer_of

    async def score(
        self, job: Job, rollout: Rollout, candidate: Candidate, case: Case, scope: Scope
    ) -> Score | Failure:
        """Measure the answer alone, whatever was said around it."""
        own = failure_of(rollout.trace)
        answer = self._answer_of(rollout.output) if own is None else own
        if isinstance(answer, Failure):
            told = TraceItem(VERIFICATION, answer.message, {"kind": answer.kind})
            return Score({}, details=(told,), failure=answer)
        data = self._case_of(case)
        trace = (TraceItem("user", str(data["input"])), answered(answer, 0.0))
        bare = Rollout(output=answer, metrics=rollout.metrics, trace=trace)
        found = await self._inner.score(job, bare, candidate, Case(case.id, data), scope)
        if isinstance(found, Failure) or found.failure is not None:
            return found
        return _as_skill(found, str(data.get("ground_truth") or ""))

    async def close(self) -> None:
        """End the processes of metrics."""
        await self._inner.close()


def _as_skill(found: Score, reference: str) -> Score:
    scores = {name: value for name, value in found.metrics.items() if name != PASSED}
    hard = found.metrics.get(PASSED, 0.0)
    # a score outside of its range has no place in a mean
    soft = fmean(min(1.0, max(0.0, value)) for value in scores.values()) if scores else hard
    figures = ", ".join(f"{name} {value:.3g}" for name, value in scores.items())
    data: dict[str, object] = {"reference": reference} if reference else {}
    told = TraceItem(VERIFICATION, f"hard {hard:g}, soft {soft:.3g}; {figures}", data)
    metrics = {**scores, "hard": hard, "soft": soft}
    measured = tuple(item for item in found.details if item.role == "metric")
    return Score(metrics, found.findings, (*measured, told))
