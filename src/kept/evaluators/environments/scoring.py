"""The scorer of an environment: `hard`, `soft` and why, with what analysts are told of it.

Where a grade needs a judge, the judge is asked in the scope of the rollout: journalled, paid for
and served from the journal like any other call.
"""

from dataclasses import replace

from kept.core.artifact import Candidate
from kept.core.case import Case
from kept.core.exchange import failure_of
from kept.core.ports import Model, Scope
from kept.core.rollout import Failure, Job, Rollout, TraceItem
from kept.core.score import Finding, Score
from kept.evaluators.environments.contract import Environment, Graded, JudgeQuestion
from kept.evaluators.environments.opened import HARD, SOFT, VERIFICATION
from kept.models.ask import ask


class EnvScorer:
    """Has an environment grade what a rollout came to."""

    def __init__(self, env: Environment, judge: Model | None = None) -> None:
        """Without a judge the environment's own rule decides what a judge would."""
        self._env = env
        self._judge = judge

    async def score(
        self, job: Job, rollout: Rollout, candidate: Candidate, case: Case, scope: Scope
    ) -> Score | Failure:
        """Grade once; a rollout that came to nothing is the candidate's failure, not a zero."""
        failure = failure_of(rollout.trace)
        if failure is not None:
            return failed_score(failure)
        graded = self._env.grade(case, rollout)
        if isinstance(graded, JudgeQuestion):
            graded = await self._judged(graded, scope)
        if isinstance(graded, Failure):
            if graded.blame == "infrastructure":
                return graded
            return failed_score(graded)
        return scored(graded, rollout, self._env.about(case).reference)

    async def _judged(self, question: JudgeQuestion, scope: Scope) -> Graded | Failure:
        judge = self._judge
        if judge is None:
            return question.fallback
        reply = await ask(scope.branch("judge"), judge, question.request)
        if not isinstance(reply, Failure):
            return question.read(reply.text)
        # a failure of the judge is never the candidate's, and a refusal would only be repeated
        return replace(
            reply,
            blame="infrastructure",
            message=f"the judge `{judge.name}`: {reply.message}",
            tried=reply.tried or reply.blame == "candidate",
        )

    async def close(self) -> None:
        """Nothing was opened here."""


def failed_score(failure: Failure) -> Score:
    """No score, and what analysts are told: the trace is worth having."""
    told = TraceItem(VERIFICATION, failure.message, {"kind": failure.kind})
    return Score({}, details=(told,), failure=failure)


def scored(graded: Graded, rollout: Rollout, reference: str) -> Score:
    """A grade as a score."""
    metrics = {**rollout.metrics, **graded.metrics, HARD: graded.hard, SOFT: graded.soft}
    findings = (Finding(graded.why, "high", HARD),) if graded.why else ()
    figures = f"{HARD} {graded.hard:g}, {SOFT} {graded.soft:.3g}"
    text = "; ".join(part for part in (figures, graded.told, graded.why) if part)
    data: dict[str, object] = {HARD: graded.hard, SOFT: graded.soft}
    data |= {"reference": reference} if reference else {}
    return Score(metrics, findings, (TraceItem(VERIFICATION, text, data),))
