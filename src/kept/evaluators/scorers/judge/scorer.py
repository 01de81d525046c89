"""Models as judges: the scorer, failures, and the mean over several judges.

The score is the mean of the judgements. Rules come first: a violation limits the score to the cap,
and with a cap of 0 no judge is called. If one judge fails, so does the whole: a mean over the
others would not be comparable. The judge is blamed, never the candidate.
"""

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, pstdev
from typing import TypeVar

from kept.core.artifact import Candidate
from kept.core.case import Case
from kept.core.llm import ModelReply, ModelRequest
from kept.core.ports import Model, Scope
from kept.core.rollout import Failure, Job, Rollout
from kept.core.score import Finding, Score
from kept.evaluators.scorers.judge.sheet import (
    Judgement,
    Sheet,
    pair_request,
    read_pair,
    read_rubric,
    rubric_request,
)
from kept.evaluators.scorers.rules import RulesScorer, Target, text_of
from kept.models.ask import ask_within, draw_seed
from kept.models.structured_output import ReplyRules

T = TypeVar("T")


async def side_by_side(asked: Sequence[Awaitable[T]]) -> list[T]:
    """Await all concurrently; if one raises, the others are cancelled."""
    if len(asked) == 1:
        # fast path without a task: most cases have one metric
        return [await asked[0]]
    tasks = [asyncio.ensure_future(one) for one in asked]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def judges_own(failure: Failure, model: Model) -> Failure:
    """Blame a judge's failure on the infrastructure; no retry if it would fail again."""
    return replace(
        failure,
        blame="infrastructure",
        message=f"the judge `{model.name}`: {failure.message}",
        tried=failure.tried or failure.blame == "candidate",
    )


CHARS = "judged_chars"
"""Metric by which a report tests if judges prefer long outputs."""

SPREAD = "spread"
CONTRADICTED = "contradicted"

OUTPUT = Target("output")


@dataclass(frozen=True, slots=True)
class Floor:
    """Rules that no judge can override, and the maximum score after a violation."""

    rules: RulesScorer
    cap: float = 0.0


class JudgeScorer:
    """Scorer that asks every judge about every output."""

    def __init__(
        self,
        judges: tuple[Model, ...],
        sheet: Sheet,
        timeout: float,
        *,
        target: Target = OUTPUT,
        floor: Floor | None = None,
    ) -> None:
        """A judge that is listed twice is asked twice, with different seeds."""
        self._judges = judges
        self._sheet = sheet
        self._timeout = timeout
        self._target = target
        self._floor = floor
        self._names = (*sheet.weights, "score")

    async def score(
        self, job: Job, rollout: Rollout, candidate: Candidate, case: Case, scope: Scope
    ) -> Score | Failure:
        """Check the rules, then ask all judges concurrently, each in its own scope."""
        checked: Score | Failure = Score(rollout.metrics)
        cap = None
        if self._floor is not None:
            checked = await self._floor.rules.score(job, rollout, candidate, case, scope)
            if isinstance(checked, Failure):
                return checked
            cap = self._floor.cap if checked.metrics["violation_count"] else None
        if cap == 0:
            return self._capped(checked, Score(dict.fromkeys(self._names, 0.0)), cap)
        text = text_of(self._target, rollout, candidate)
        if text is None or not text.strip():
            return Failure("empty", "candidate", "there is nothing to judge")
        said = await side_by_side(
            [
                self._hear(n, text, case, (job, scope.branch(f"judge-{n}")))
                for n in range(len(self._judges))
            ]
        )
        failure = next((one for one in said if isinstance(one, Failure)), None)
        if failure is not None:
            return failure
        told = [one for one in said if isinstance(one, Judgement)]
        score = Score(self._measures(told), self._findings(told))
        if cap is not None:
            return self._capped(checked, score, cap)
        return Score({**checked.metrics, **score.metrics, CHARS: len(text)}, score.findings)

    async def close(self) -> None:
        """End the processes of the rules; models have nothing to close."""
        if self._floor is not None:
            await self._floor.rules.close()

    async def _hear(
        self, number: int, text: str, case: Case, at: tuple[Job, Scope]
    ) -> Judgement | Failure:
        """Ask one judge all questions about an output."""
        job, scope = at
        seed = draw_seed(job.purpose, job.case_id, job.repeat, number)
        sheet = self._sheet
        requests: dict[str, ModelRequest] = {}
        if sheet.criteria:
            requests["rubric"] = rubric_request(sheet, text, case, seed)
        if sheet.rival is not None:
            for name in ("first", "second"):
                first = name == "first"
                requests[name] = pair_request(sheet, text, case, seed, first=first)
        model, rules = self._judges[number], ReplyRules(ignore_extra_keys=True)
        asked = (
            ask_within(self._timeout, scope.branch(name), model, request, rules)
            for name, request in requests.items()
        )
        replies = dict(zip(requests, await side_by_side(list(asked)), strict=True))
        for reply in replies.values():
            if isinstance(reply, Failure):
                return judges_own(reply, model)
        said = {name: one.text for name, one in replies.items() if isinstance(one, ModelReply)}
        parts: list[Judgement] = []
        if "rubric" in said:
            parts.append(read_rubric(sheet, said["rubric"]))
        if "first" in said:
            parts.append(read_pair(said["first"], said["second"]))
        return Judgement(
            {name: value for part in parts for name, value in part.values.items()},
            tuple(finding for part in parts for finding in part.findings),
            any(part.contradicted for part in parts),
        )

    def _measures(self, told: Sequence[Judgement]) -> dict[str, float]:
        """Means and standard deviations over the judges."""
        weights = self._sheet.weights
        whole = sum(weights.values())
        totals = [sum(w * one.values[name] for name, w in weights.items()) / whole for one in told]
        found = {name: fmean(one.values[name] for one in told) for name in weights}
        found["score"] = fmean(totals)
        if self._sheet.rival is not None:
            found[CONTRADICTED] = fmean(one.contradicted for one in told)
        if len(told) > 1:
            found |= {f"{n}.{SPREAD}": pstdev([one.values[n] for one in told]) for n in weights}
            found[SPREAD] = pstdev(totals)
        return found

    def _capped(self, checked: Score, judged: Score, cap: float) -> Score:
        """Score limited to the cap after a violation; the length is left out as meaningless."""
        least = {n: min(v, cap) if n in self._names else v for n, v in judged.metrics.items()}
        note = Finding(f"a rule is broken, so no measure of a judge is more than {cap:g}", "high")
        findings = (*checked.findings, note, *judged.findings)
        return Score({**checked.metrics, **least}, findings)

    def _findings(self, told: Sequence[Judgement]) -> tuple[Finding, ...]:
        if len(told) == 1:
            return told[0].findings
        return tuple(
            replace(finding, text=f"judge {n}: {finding.text}")
            for n, one in enumerate(told, 1)
            for finding in one.findings
        )
