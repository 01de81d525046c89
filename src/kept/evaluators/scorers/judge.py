"""Models as judges: prompts, replies, failures, and the mean over several judges.

Judges give values on named scales, and the score is their mean. Rules come first: a violation
limits the score to the cap, and with a cap of 0 no judge is called. If one judge fails, so does
the whole: a mean over the others would not be comparable. The judge is blamed, never the
candidate.

Material of a candidate is fenced off, so that instructions in it are judged, not followed.
"""

import asyncio
import json
import re
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, pstdev
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, cast

from pydantic import AfterValidator, Field, ValidationError, model_validator

from kept.core.artifact import Candidate
from kept.core.case import Case
from kept.core.llm import Message, ModelReply, ModelRequest
from kept.core.ports import Model, Scope
from kept.core.rollout import Failure, Job, Rollout
from kept.core.score import Finding, Score, Severity
from kept.core.text import one_line
from kept.evaluators.scorers.rules import (
    RuleSpec,
    RulesScorer,
    RulesScorerSpec,
    Share,
    Target,
    TargetName,
    text_of,
)
from kept.models.ask import ask_within, draw_seed
from kept.models.context_window import Named, fenced
from kept.models.prompts import filled, prompt
from kept.models.structured_output import ReplyRules
from kept.sandbox.command import TIMEOUT
from kept.spec.shared_sections import RoleSpec
from kept.spec.validate import Count, Finite, OneOrMore, Seconds, SomeTexts, SpecModel, Text, some

T = TypeVar("T")


async def side_by_side(asked: Sequence[Awaitable[T]]) -> list[T]:
    """All of them; when one raises, the others are not left running."""
    if len(asked) == 1:
        # beside nothing: a task would only cost, and most cases have one metric
        return [await asked[0]]
    tasks = [asyncio.ensure_future(one) for one in asked]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def judges_own(failure: Failure, model: Model) -> Failure:
    """A failure of a judge: no candidate's, and not tried again where the same would be heard."""
    return replace(
        failure,
        blame="infrastructure",
        message=f"the judge `{model.name}`: {failure.message}",
        tried=failure.tried or failure.blame == "candidate",
    )


PREFERRED = "preferred"
"""The measure of a comparison: 1 won, 0 lost, 0.5 for neither."""

LONGEST = 1_000
"""Characters of a reason that are kept beside the score; the reply in the journal has all."""

_ODD = re.compile(r"\W+")

_PAIR: Mapping[str, object] = {
    "type": "object",
    "properties": {
        "reason": {"type": "string"},
        "better": {"type": "string", "enum": ["first", "second", "equal"]},
    },
    "required": ["reason", "better"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True)
class Criterion:
    """One thing that a judge looks at."""

    name: str
    means: str
    levels: tuple[str | int, ...] = (1, 2, 3, 4, 5)
    """The worst first; each is worth as much more than the one before."""
    weight: float = 1.0

    def value(self, level: str | int) -> float:
        """A level between 0 and 1."""
        return self.levels.index(level) / (len(self.levels) - 1)

    @property
    def scale(self) -> str:
        """The levels, in words."""
        if isinstance(self.levels[0], int):
            return f"{self.levels[0]} (worst) to {self.levels[-1]} (best)"
        return " < ".join(str(level) for level in self.levels)


@dataclass(frozen=True, slots=True)
class Sheet:
    """What judges are asked about every output."""

    criteria: tuple[Criterion, ...] = ()
    input: tuple[str, ...] = ()
    """Fields of a case that judges see."""
    reference: str | None = None
    """The field with an answer that is known to be good."""
    rival: str | None = None
    """The field with an answer that the output is compared with, in both orders."""
    rival_weight: float = 1.0
    rubric: str = ""
    """What somebody wrote for judges besides."""
    prompt: str = ""
    rival_prompt: str = ""
    """Instead of Kept's own."""

    @property
    def weights(self) -> Mapping[str, float]:
        """What each measure counts."""
        found = {criterion.name: criterion.weight for criterion in self.criteria}
        return found if self.rival is None else {**found, PREFERRED: self.rival_weight}


class Judgement(NamedTuple):
    """What one judge said of one output."""

    values: Mapping[str, float]
    findings: tuple[Finding, ...]
    contradicted: bool = False
    """Whether it preferred one of two answers in one order, and the other in the other."""


def rubric_request(sheet: Sheet, output: str, case: Case, seed: int) -> ModelRequest:
    """Ask for a value on every scale, each with its reason before it."""
    told = _told(sheet, sheet.prompt or prompt("judge"))
    parts = [told, "# Criteria", *map(_described, sheet.criteria)]
    shown = [*_given(sheet, case)]
    if sheet.reference is not None:
        parts.append("The reference is an answer that is known to be good. It is not the only one.")
        shown.append(("reference", _field(case, sheet.reference)))
    shown.append(("output", output))
    return _request(sheet, parts, shown, _schema(sheet.criteria), seed)


def pair_request(sheet: Sheet, output: str, case: Case, seed: int, *, first: bool) -> ModelRequest:
    """Ask which of two answers is better, with the output first or second."""
    assert sheet.rival is not None
    answers = (output, _field(case, sheet.rival))
    if not first:
        answers = answers[::-1]
    parts = [_told(sheet, sheet.rival_prompt or prompt("judge_pair"))]
    if sheet.criteria:
        parts += ["# What matters", *map(_described, sheet.criteria)]
    shown = [*_given(sheet, case), *zip(("first", "second"), answers, strict=True)]
    return _request(sheet, parts, shown, _PAIR, seed)


def read_rubric(sheet: Sheet, reply: str) -> Judgement:
    """Values and reasons of a reply that satisfies the schema."""
    said = cast("dict[str, dict[str, Any]]", json.loads(reply))
    values: dict[str, float] = {}
    findings: list[Finding] = []
    for criterion in sheet.criteria:
        level, reason = said[criterion.name]["level"], str(said[criterion.name]["reason"])
        value = values[criterion.name] = criterion.value(level)
        best = f" of {criterion.levels[-1]}" if isinstance(criterion.levels[0], int) else ""
        text = f"{criterion.name} {level}{best}: {one_line(reason, LONGEST)}"
        findings.append(Finding(text, _severity(value), criterion.name))
    return Judgement(values, tuple(findings))


def read_pair(first: str, second: str) -> Judgement:
    """What two replies come to: to the output as the first answer, and as the second."""
    there, back = (cast("dict[str, str]", json.loads(reply)) for reply in (first, second))
    won = {"first": 1.0, "equal": 0.5, "second": 0.0}
    one, other = won[there["better"]], 1.0 - won[back["better"]]
    contradicted = {one, other} == {0.0, 1.0}
    value = 0.5 if contradicted else (one + other) / 2
    texts = (
        f"{PREFERRED} {one:g} as the first: {one_line(there['reason'], LONGEST)}",
        f"{PREFERRED} {other:g} as the second: {one_line(back['reason'], LONGEST)}",
    )
    if contradicted:
        texts = (*texts, f"{PREFERRED}: the two orders contradict each other, which is a tie")
    findings = tuple(Finding(text, _severity(value), PREFERRED) for text in texts)
    return Judgement({PREFERRED: value}, findings, contradicted)


def _request(
    sheet: Sheet,
    parts: Sequence[str],
    shown: Sequence[Named],
    schema: Mapping[str, object],
    seed: int,
) -> ModelRequest:
    notes = ["# Notes of whoever set the task", sheet.rubric] if sheet.rubric else []
    system = "\n\n".join(part.strip() for part in (*parts, *notes))
    messages = (Message("system", system), Message("user", fenced(shown)))
    return ModelRequest(messages, schema=schema, seed=seed)


def _told(sheet: Sheet, text: str) -> str:
    return filled(text, {"criteria": ", ".join(one.name for one in sheet.criteria)})


def _described(criterion: Criterion) -> str:
    return f"## {criterion.name}: {criterion.scale}\n\n{criterion.means.strip()}"


def _schema(criteria: tuple[Criterion, ...]) -> Mapping[str, object]:
    def one(criterion: Criterion) -> Mapping[str, object]:
        # the reason first: what a model has written is what it goes by
        kind = "integer" if isinstance(criterion.levels[0], int) else "string"
        fields = {
            "reason": {"type": "string"},
            "level": {"type": kind, "enum": list(criterion.levels)},
        }
        return {
            "type": "object",
            "properties": fields,
            "required": list(fields),
            "additionalProperties": False,
        }

    return {
        "type": "object",
        "properties": {criterion.name: one(criterion) for criterion in criteria},
        "required": [criterion.name for criterion in criteria],
        "additionalProperties": False,
    }


def _given(sheet: Sheet, case: Case) -> Iterator[Named]:
    for name in sheet.input:
        label = "input" if len(sheet.input) == 1 else f"input-{_ODD.sub('-', name)}"
        yield label, _field(case, name)


def _field(case: Case, name: str) -> str:
    value = cast("Mapping[str, object]", case.data)[name]
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _severity(value: float) -> Severity:
    return "high" if value < 1 / 3 else "medium" if value < 2 / 3 else "low"


CHARS = "judged_chars"
"""The measure by which a report tells whether judges go by length."""

SPREAD = "spread"
CONTRADICTED = "contradicted"

OUTPUT = Target("output")


@dataclass(frozen=True, slots=True)
class Floor:
    """What no judge can override: rules, and the most that an output is worth which breaks one."""

    rules: RulesScorer
    cap: float = 0.0


class JudgeScorer:
    """Asks every judge about every output."""

    def __init__(
        self,
        judges: tuple[Model, ...],
        sheet: Sheet,
        timeout: float,
        *,
        target: Target = OUTPUT,
        floor: Floor | None = None,
    ) -> None:
        """A judge that stands there twice is asked twice, each time for another draw."""
        self._judges = judges
        self._sheet = sheet
        self._timeout = timeout
        self._target = target
        self._floor = floor
        self._names = (*sheet.weights, "score")

    async def score(
        self, job: Job, rollout: Rollout, candidate: Candidate, case: Case, scope: Scope
    ) -> Score | Failure:
        """Check the rules, then ask every judge, side by side, each in a scope of its own."""
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
        """End the processes of the rules; models are nobody's to close."""
        if self._floor is not None:
            await self._floor.rules.close()

    async def _hear(
        self, number: int, text: str, case: Case, at: tuple[Job, Scope]
    ) -> Judgement | Failure:
        """All that one judge says of an output."""
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
        """Means over the judges, and how far they are apart."""
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
        """What is left where a rule is broken; without the length, which says nothing here."""
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


MOST_LEVELS = 101
"""Of a scale: nobody tells more apart."""

RESERVED = ("score", "spread", "preferred", "contradicted", "judged_chars", "violation_count")
"""Measures that a judge scorer emits by itself."""

Weight = Annotated[Finite, Field(ge=0)]


def _name(text: str) -> str:
    if not re.fullmatch(r"[\w-]+", text):
        raise ValueError(f"`{text}` is not a name; write letters, digits, `-` and `_`")
    if text in RESERVED:
        raise ValueError(f"no criterion can be named `{text}`: that is a measure of its own")
    return text


class CriterionSpec(SpecModel):
    """One thing that a judge looks at: what it means, and the values it may take."""

    name: Annotated[Text, AfterValidator(_name)]
    means: Text
    scale: Annotated[tuple[int, int], Field(strict=False)] | None = None
    """The worst and the best, all whole numbers between them included; 1 to 5 by default."""
    levels: SomeTexts | None = None
    """Instead of numbers: words, the worst first."""
    weight: Weight = 1.0

    @classmethod
    def faults(cls, said: Mapping[str, Any]) -> Iterator[str]:
        """Numbers or words, and more than one of them."""
        scale, levels = said.get("scale"), said.get("levels")
        if scale is not None and levels is not None:
            yield "a criterion has either a `scale` or `levels`"
        if scale is not None and scale[0] >= scale[1]:
            yield "`scale` is reversed: write the worst value, then the best"
        elif scale is not None and scale[1] - scale[0] >= MOST_LEVELS:
            yield f"`scale` has more than {MOST_LEVELS} values"
        if levels is not None and len(set(levels)) < max(2, len(levels)):
            yield "`levels` are two words or more, each another"

    @property
    def values(self) -> tuple[str | int, ...]:
        """All that a judge may choose from, the worst first."""
        if self.levels is not None:
            return self.levels
        low, high = self.scale or (1, 5)
        return tuple(range(low, high + 1))


class PairwiseSpec(SpecModel):
    """A comparison with an answer that the case has, in both orders."""

    reference: Text
    """The field of the case that holds it."""
    weight: Weight = 1.0
    prompt: Text | None = None
    """A file to stand for Kept's own prompt."""


class JudgeScorerSpec(SpecModel):
    """Criteria, and the models that judge by them."""

    type: Literal["judge"]
    judges: Annotated[tuple[RoleSpec, ...], Field(strict=False), AfterValidator(some)] | None = None
    """By default the one of `models.judge`."""
    draws: Count = 1
    """How often each of them is asked."""
    criteria: Annotated[tuple[CriterionSpec, ...], Field(strict=False)] = ()
    pairwise: PairwiseSpec | None = None
    input: OneOrMore | None = None
    """Fields of a case that judges see; by default those that a model which is the runner sees."""
    reference: Text | None = None
    """The field of a case with an answer that is known to be good."""
    target: TargetName = "output"
    """The text that is judged."""
    rules: Annotated[tuple[RuleSpec, ...], Field(strict=False)] = ()
    """What no judge can override."""
    cap: Share | None = None
    """The most that an output is worth which breaks a rule; 0 by default."""
    prompt: Text | None = None
    """A file to stand for Kept's own prompt."""
    timeout_seconds: Seconds = TIMEOUT
    """For one answer of a judge."""

    @classmethod
    def faults(cls, said: Mapping[str, Any]) -> Iterator[str]:
        """Something to judge by, and no key without an effect."""
        if not {"criteria", "pairwise", "rules", "cap", "prompt", "reference"} <= said.keys():
            return
        criteria, pairwise = said["criteria"], said["pairwise"]
        if not criteria and pairwise is None:
            yield "there is nothing to judge by; give `criteria`, `pairwise` or both"
        if said["cap"] is not None and not said["rules"]:
            yield "`cap` is what a broken rule leaves, and there are no `rules`"
        if not criteria and (said["prompt"] is not None or said["reference"] is not None):
            yield "`prompt` and `reference` go with `criteria`; `pairwise` has its own"

    @model_validator(mode="after")
    def _can_be_weighed_and_told_apart(self) -> "JudgeScorerSpec":
        names = [one.name for one in self.criteria]
        doubled = [name for name in dict.fromkeys(names) if names.count(name) > 1]
        told = [f"two criteria are named `{name}`" for name in doubled]
        if not sum(one.weight for one in (*self.criteria, *filter(None, (self.pairwise,)))):
            told.append("the weights add up to nothing")
        try:
            taken = [name for name in self.rule_names if name in {*RESERVED, *names}]
        except ValidationError as error:
            told += [fault["msg"].removeprefix("Value error, ") for fault in error.errors()]
            taken = []
        told += [f"a rule cannot be named `{name}`: that is a judge's measure" for name in taken]
        if told:
            raise ValueError("; ".join(told))
        return self

    @property
    def floor(self) -> RulesScorerSpec:
        """The rules as a scorer of their own; they look at what is judged unless they say."""
        return RulesScorerSpec(type="rules", target=self.target, rules=self.rules)

    @property
    def rule_names(self) -> list[str]:
        """The measure of each rule."""
        return self.floor.names if self.rules else []

    @property
    def emitted(self) -> list[str]:
        """The measures that every rollout has."""
        found = ["score", *(one.name for one in self.criteria)]
        found += ["preferred"] if self.pairwise else []
        return [*found, *(["violation_count"] if self.rules else []), *self.rule_names]

    @property
    def fields(self) -> list[tuple[tuple[str, ...], str]]:
        """The fields of a case that are needed, each with the key that names it."""
        found = [(("input",), name) for name in self.input or ()]
        found += [(("reference",), self.reference)] if self.reference else []
        found += [(("pairwise", "reference"), self.pairwise.reference)] if self.pairwise else []
        return found

    @property
    def prompts(self) -> list[tuple[tuple[str, ...], str]]:
        """The files that stand for prompts of Kept's own, each with the key that names it."""
        found = [(("prompt",), self.prompt)] if self.prompt else []
        pair = self.pairwise.prompt if self.pairwise else None
        return [*found, *([(("pairwise", "prompt"), pair)] if pair else [])]
