"""Assertions that a model decides, by the same questions as a judge's."""

from collections.abc import Mapping
from typing import NamedTuple

from kept.core.case import Case
from kept.core.ports import Model, Scope
from kept.core.rollout import Failure, Job, Rollout
from kept.evaluators.scorers.assertions.spec import Assertion, Grade
from kept.evaluators.scorers.judge.scorer import judges_own
from kept.evaluators.scorers.judge.sheet import Criterion, Sheet, read_rubric, rubric_request
from kept.models.ask import ask_within, draw_seed
from kept.models.structured_output import ReplyRules

GRADED = ("llm-rubric", "model-graded-closedqa", "factuality", "model-graded-factuality")

VERDICT = "verdict"
REFERENCE = "expected facts"

_YES_OR_NO = ("fail", "pass")
_TENTHS = tuple(range(11))
"""Levels for an assertion with a threshold, which needs a score."""

_FACTS = (
    "The facts of the output agree with those of the reference. `pass`: they agree, or one says "
    "more than the other without a contradiction, or they differ in what does not matter to the "
    "facts. `fail`: they contradict each other."
)
_MEETS = "The output meets this criterion: "


class Asked(NamedTuple):
    """Rollout and context of an assertion."""

    job: Job
    rollout: Rollout
    given: Mapping[str, object]
    """Variables of the case."""
    scope: Scope


async def graded(one: Assertion, asked: Asked, judge: Model, seconds: float) -> Grade | Failure:
    """Grade an output by asking the judge."""
    output = asked.rollout.output
    if not output.strip():
        return Failure("empty", "candidate", "there is nothing to judge")
    facts = one.type in ("factuality", "model-graded-factuality")
    means = _FACTS if facts else str(one.value)
    if one.type == "model-graded-closedqa":
        means = _MEETS + means
    levels = _YES_OR_NO if one.threshold is None else _TENTHS
    criterion = Criterion(VERDICT, means, levels)
    given = {**asked.given, **({REFERENCE: one.value} if facts else {})}
    sheet = Sheet((criterion,), tuple(asked.given), REFERENCE if facts else None)
    job = asked.job
    seed = draw_seed("assert", job.purpose, job.case_id, job.repeat)
    request = rubric_request(sheet, output, Case(job.case_id, given), seed)
    rules = ReplyRules(ignore_extra_keys=True)
    reply = await ask_within(seconds, asked.scope, judge, request, rules)
    if isinstance(reply, Failure):
        return judges_own(reply, judge)
    judgement = read_rubric(sheet, reply.text)
    score = judgement.values[VERDICT]
    passed = score >= (1.0 if one.threshold is None else one.threshold)
    if one.negated:
        passed, score = not passed, 1.0 - score
    reason = judgement.findings[0].text.partition(": ")[2]
    return Grade(passed, score, reason)
