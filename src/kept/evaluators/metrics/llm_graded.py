"""Metrics graded by a judge: whole answers (geval), and RAG answers piece by piece.

Each question runs in its own branch of the scope and is retried on failure. Judged material is
fenced off. A failure of the judge is never blamed on the candidate.

Whole answers are graded by four known criteria, or by those of the user (geval).

For RAG, one question splits a text into statements, and one more judges each statement or
passage. The score is counted, not asked for. It is 0 if there is nothing to count: saying or
retrieving nothing must not pay.
"""

import json
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar, cast

from kept.core.llm import Message, ModelRequest
from kept.core.ports import Model, Scope
from kept.core.rollout import Failure
from kept.core.text import one_line
from kept.evaluators.metrics.config import (
    GEvalMetric,
    Graded,
    Measured,
    Param,
    RagMetric,
    RagType,
    StandardMetric,
    Subject,
    lacking,
)
from kept.evaluators.scorers.judge.scorer import judges_own, side_by_side
from kept.evaluators.scorers.judge.sheet import LONGEST
from kept.models.ask import ask_within
from kept.models.context_window import Named, fenced
from kept.models.prompts import Name, filled, prompt
from kept.models.structured_output import ReplyRules

T = TypeVar("T")
Schema = Mapping[str, object]

TEXT: Schema = {"type": "string"}


def schema(**properties: Schema) -> Schema:
    """Object schema with these required fields in order: a reason comes before its verdict."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


class Judge:
    """Judge for one metric of one exchange."""

    def __init__(
        self, model: Model, scope: Scope, *, seconds: float, retries: int, seed: int
    ) -> None:
        self.model = model
        self._scope = scope
        self._seconds = seconds
        self._retries = retries
        self._seed = seed
        self.tries = 1
        """Maximum number of tries that a question took."""
        self.seconds = 0.0
        """Total journalled time of the replies."""

    async def ask(
        self, name: str, told: str, shown: Sequence[Named], wanted: Schema
    ) -> dict[str, Any] | Failure:
        """Ask a question with retries; return the reply by the schema, or a failure."""
        messages = (Message("system", told.strip()), Message("user", fenced(shown)))
        request = ModelRequest(messages, schema=wanted, seed=self._seed)
        scope = self._scope.branch(name)
        tried = 0
        while True:
            tried += 1
            self.tries = max(self.tries, tried)
            rules = ReplyRules(ignore_extra_keys=True)
            reply = await ask_within(self._seconds, scope, self.model, request, rules)
            if not isinstance(reply, Failure):
                self.seconds += reply.seconds
                return json.loads(reply.text)
            if tried > self._retries:
                return judges_own(reply, self.model)


async def all_of(asked: Sequence[Awaitable[T | Failure]]) -> list[T] | Failure:
    """Await all answers; return the first failure if there is one."""
    found: list[T] = []
    for answer in await side_by_side(asked):
        if isinstance(answer, Failure):
            return answer
        found.append(answer)
    return found


TENTHS = 10
"""Highest grade that geval asks for."""

ENOUGH = 0.5
"""Passing score of geval without a threshold."""

NOTHING = "(nothing)"

Prompts = Mapping[Name, str]
"""Prompts in place of Kept's own, by name."""


def saying_nothing(subject: Subject) -> Measured | None:
    """Worst score for an empty answer, without asking a judge; None for other answers."""
    if subject.response.strip():
        return None
    return Measured(0.0, False, "the answer is empty")


async def graded(
    settings: StandardMetric, subject: Subject, judge: Judge, prompts: Prompts
) -> Measured | Failure:
    """Grade by one of the four criteria, as a share of the highest grade."""
    if (nothing := saying_nothing(subject)) is not None:
        return nothing
    name = cast("Graded", settings.metric)
    text = settings.custom_prompt or prompts.get(name) or prompt(name)
    told = filled(text, {"scale": str(settings.scale)})
    told += f"\n\nGrades are whole numbers from 1 (worst) to {settings.scale} (best)."
    grades = list(range(1, settings.scale + 1))
    wanted = schema(reason=TEXT, grade={"type": "integer", "enum": grades})
    shown = [("input", subject.input)]
    if name == "groundedness" and subject.context:
        shown += passages(subject)
    said = await judge.ask("grade", told, [*shown, ("answer", subject.response)], wanted)
    if isinstance(said, Failure):
        return said
    grade: int = said["grade"]
    details = {"grade": grade, "scale": settings.scale}
    # a threshold above 1 is compared with the grade itself
    least = settings.threshold if settings.threshold is not None else 0.0
    passed = grade >= least if least > 1 else None
    return Measured(grade / settings.scale, passed, reason_of(said), details=details)


async def geval(
    settings: GEvalMetric, subject: Subject, judge: Judge, prompts: Prompts
) -> Measured | Failure:
    """Grade by the user's criteria; all or nothing with `strict_mode`."""
    if "expected_output" in settings.evaluation_params and subject.ground_truth is None:
        return lacking("ground_truth")
    if (nothing := saying_nothing(subject)) is not None:
        return nothing
    text = prompts.get("geval") or prompt("geval")
    told = filled(text, {"name": settings.name, "criteria": settings.criteria})
    told += f"\n\n# Criteria\n\n{settings.criteria.strip()}"
    steps = settings.evaluation_steps
    if steps:
        listed = "\n".join(f"{n}. {step}" for n, step in enumerate(steps, 1))
        told += f"\n\n# Steps\n\nGo through these in their order:\n\n{listed}"
    else:
        told += "\n\nSay first by which steps you judge, then go through them."
    best = 1 if settings.strict_mode else TENTHS
    if settings.strict_mode:
        told += "\n\nGrade 1 where all of it is met without a fault, and 0 otherwise."
    else:
        told += f"\n\nGrades are whole numbers from 0 (not met at all) to {best} (met in full)."
    own = {} if steps else {"steps": {"type": "array", "items": TEXT}}
    wanted = schema(**own, reason=TEXT, grade={"type": "integer", "enum": list(range(best + 1))})
    said = await judge.ask("grade", told, _params(settings.evaluation_params, subject), wanted)
    if isinstance(said, Failure):
        return said
    score = said["grade"] / best
    passed = score >= ENOUGH
    return Measured(score, passed, reason_of(said), details={"grade": said["grade"], "scale": best})


def _params(params: tuple[Param, ...], subject: Subject) -> list[Named]:
    found: list[Named] = []
    for param in params:
        if param == "input":
            found.append(("input", subject.input))
        elif param == "actual_output":
            found.append(("answer", subject.response))
        elif param == "expected_output":
            found.append(("expected", subject.ground_truth or ""))
        elif not any(name.startswith("passage") for name, _ in found):
            found += passages(subject) or [("passage", NOTHING)]
    return found


def passages(subject: Subject) -> list[Named]:
    """The passages of an exchange, numbered."""
    return [(f"passage-{n}", text) for n, text in enumerate(subject.context, 1)]


def reason_of(said: Mapping[str, object]) -> str:
    """Reason of a judge in one line."""
    return one_line(str(said["reason"]), LONGEST)


_STATEMENTS: Schema = schema(statements={"type": "array", "items": TEXT})
_VERDICT: Schema = schema(reason=TEXT, verdict={"type": "string", "enum": ["yes", "no"]})

NEEDS_TRUTH: tuple[RagType, ...] = ("contextual_precision", "contextual_recall")
NEEDS_CONTEXT: tuple[RagType, ...] = (
    "faithfulness",
    "contextual_precision",
    "contextual_recall",
    "contextual_relevancy",
)
OF_ANSWER: tuple[RagType, ...] = ("faithfulness", "answer_relevancy")


class Verdict(NamedTuple):
    """Verdict of a judge on one statement or passage."""

    of: str
    holds: bool
    reason: str


async def rag(
    settings: RagMetric, subject: Subject, judge: Judge, prompts: Prompts
) -> Measured | Failure:
    """Measure one of the five RAG metrics."""
    kind = settings.metric_type
    if kind in NEEDS_TRUTH and subject.ground_truth is None:
        return lacking("ground_truth")
    if kind in OF_ANSWER and not subject.response.strip():
        return Measured(0.0, False, "the answer is empty")
    if kind in NEEDS_CONTEXT and not any(map(str.strip, subject.context)):
        return Measured(0.0, False, "no passage was found")
    asking = _Asking(kind, subject, judge, prompts)
    verdicts = await asking.verdicts()
    if isinstance(verdicts, Failure):
        return verdicts
    ranked = kind == "contextual_precision"
    holds = [one.holds for one in verdicts]
    score = rank_weighted(holds) if ranked else share(holds)
    reason = _reason(kind, verdicts) if settings.include_reason else ""
    # proposers may read it, so what was expected is not quoted
    hidden = kind == "contextual_recall"
    told = [{"of": "" if hidden else one_line(v.of, LONGEST), "holds": v.holds} for v in verdicts]
    return Measured(score, None, reason, details={"verdicts": told})


def share(holds: Sequence[bool]) -> float:
    """Share of verdicts that hold; 0 if there are none."""
    return sum(holds) / len(holds) if holds else 0.0


def rank_weighted(holds: Sequence[bool]) -> float:
    """Average precision: mean of precision@k over all positions k that hold."""
    if not any(holds):
        return 0.0
    at = [sum(holds[: n + 1]) / (n + 1) for n, one in enumerate(holds) if one]
    return sum(at) / len(at)


class _Asking:
    """Questions of one RAG metric about one exchange."""

    def __init__(self, kind: RagType, subject: Subject, judge: Judge, prompts: Prompts) -> None:
        self._kind: RagType = kind
        self._subject = subject
        self._judge = judge
        self._prompts = prompts

    async def verdicts(self) -> list[Verdict] | Failure:
        """Verdicts on all pieces."""
        pieces = await self._pieces()
        if isinstance(pieces, Failure):
            return pieces
        told = self._prompts.get(self._kind) or prompt(self._kind)
        return await all_of([self._judged(n, one, told) for n, one in enumerate(pieces)])

    async def _pieces(self) -> list[str] | Failure:
        """Pieces to judge: statements of a text, or passages."""
        subject = self._subject
        texts: Mapping[RagType, list[Named]] = {
            "faithfulness": [("text", subject.response)],
            "answer_relevancy": [("text", subject.response)],
            "contextual_recall": [("text", subject.ground_truth or "")],
            "contextual_relevancy": passages(subject),
        }
        if self._kind not in texts:
            return list(subject.context)
        told = self._prompts.get("statements") or prompt("statements")
        said = await self._judge.ask("statements", told, texts[self._kind], _STATEMENTS)
        if isinstance(said, Failure):
            return said
        return [one for one in said["statements"] if one.strip()]

    async def _judged(self, number: int, piece: str, told: str) -> Verdict | Failure:
        subject = self._subject
        given: Mapping[RagType, list[Named]] = {
            "faithfulness": passages(subject),
            "answer_relevancy": [("input", subject.input)],
            "contextual_precision": [
                ("input", subject.input),
                ("expected", subject.ground_truth or ""),
            ],
            "contextual_recall": passages(subject),
            "contextual_relevancy": [("input", subject.input)],
        }
        what = "passage" if self._kind == "contextual_precision" else "statement"
        shown = [*given[self._kind], (what, piece)]
        said = await self._judge.ask(f"piece-{number}", told, shown, _VERDICT)
        if isinstance(said, Failure):
            return said
        return Verdict(piece, said["verdict"] == "yes", reason_of(said))


_WHAT: Mapping[RagType, str] = {
    "faithfulness": "statements of the answer are supported",
    "answer_relevancy": "statements of the answer are to the point",
    "contextual_precision": "passages are useful",
    "contextual_recall": "statements of what was expected are found in the passages",
    "contextual_relevancy": "statements of the passages are to the point",
}


def _reason(kind: RagType, verdicts: Sequence[Verdict]) -> str:
    """Reason that counts the verdicts and says why some do not hold."""
    held = sum(one.holds for one in verdicts)
    whole = f"{held} of {len(verdicts)} {_WHAT[kind]}"
    hidden = kind == "contextual_recall"
    against = [one.reason for one in verdicts if not one.holds and not hidden]
    return one_line("; ".join((whole, *against)), LONGEST)
