"""Answers and the passages they rest on, looked at piece by piece.

One question takes a text apart into statements, one more each judges a single statement or passage;
the score is counted, not asked for. Where there is nothing to count it is 0: saying nothing, and
finding nothing, must not pay.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kept.core.rollout import Failure
from kept.core.words import one_line
from kept.evaluators.metrics.asking import TEXT, Judge, Schema, all_of, schema
from kept.evaluators.metrics.config import RagMetric, RagType
from kept.evaluators.metrics.graded import Prompts, passages, reason_of
from kept.evaluators.metrics.subject import Measured, Subject, lacking
from kept.evaluators.scorers.judging import LONGEST
from kept.models.fencing import Named
from kept.models.prompts import prompt

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
    """What a judge says of one statement or passage."""

    of: str
    holds: bool
    reason: str


async def rag(
    settings: RagMetric, subject: Subject, judge: Judge, prompts: Prompts
) -> Measured | Failure:
    """One of the five."""
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
    """How many of them hold."""
    return sum(holds) / len(holds) if holds else 0.0


def rank_weighted(holds: Sequence[bool]) -> float:
    """The mean, over all that hold, of the share that holds down to its place."""
    if not any(holds):
        return 0.0
    at = [sum(holds[: n + 1]) / (n + 1) for n, one in enumerate(holds) if one]
    return sum(at) / len(at)


class _Asking:
    """The questions of one such metric about one exchange."""

    def __init__(self, kind: RagType, subject: Subject, judge: Judge, prompts: Prompts) -> None:
        self._kind: RagType = kind
        self._subject = subject
        self._judge = judge
        self._prompts = prompts

    async def verdicts(self) -> list[Verdict] | Failure:
        """One for each piece."""
        pieces = await self._pieces()
        if isinstance(pieces, Failure):
            return pieces
        told = self._prompts.get(self._kind) or prompt(self._kind)
        return await all_of([self._judged(n, one, told) for n, one in enumerate(pieces)])

    async def _pieces(self) -> list[str] | Failure:
        """What is judged one by one."""
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
    """How many hold, and why the others do not."""
    held = sum(one.holds for one in verdicts)
    whole = f"{held} of {len(verdicts)} {_WHAT[kind]}"
    hidden = kind == "contextual_recall"
    against = [one.reason for one in verdicts if not one.holds and not hidden]
    return one_line("; ".join((whole, *against)), LONGEST)
