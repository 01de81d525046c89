"""Requests to judges about an output, and parsing of their replies.

Judges give values on named scales. Material of a candidate is fenced off, so that instructions in
it are judged, not followed.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from kept.core.case import Case
from kept.core.llm import Message, ModelRequest
from kept.core.score import Finding, Severity
from kept.core.text import one_line
from kept.models.context_window import Named, fenced
from kept.models.prompts import filled, prompt

PREFERRED = "preferred"
"""Metric of a comparison: 1 won, 0 lost, 0.5 for a tie."""

LONGEST = 1_000
"""Maximum length of a reason beside the score; the journal has the whole reply."""

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
    """Criterion of a judge."""

    name: str
    means: str
    levels: tuple[str | int, ...] = (1, 2, 3, 4, 5)
    """Levels at equal distances, the worst first."""
    weight: float = 1.0

    def value(self, level: str | int) -> float:
        """Value of a level, from 0 to 1."""
        return self.levels.index(level) / (len(self.levels) - 1)

    @property
    def scale(self) -> str:
        """Text that describes the levels."""
        if isinstance(self.levels[0], int):
            return f"{self.levels[0]} (worst) to {self.levels[-1]} (best)"
        return " < ".join(str(level) for level in self.levels)


@dataclass(frozen=True, slots=True)
class Sheet:
    """Questions to judges about every output."""

    criteria: tuple[Criterion, ...] = ()
    input: tuple[str, ...] = ()
    """Fields of a case that judges see."""
    reference: str | None = None
    """Case field with an answer that is known to be good."""
    rival: str | None = None
    """Case field with an answer to compare the output with, in both orders."""
    rival_weight: float = 1.0
    rubric: str = ""
    """Further notes for judges by the author of the task."""
    prompt: str = ""
    rival_prompt: str = ""
    """Prompt in place of Kept's own."""

    @property
    def weights(self) -> Mapping[str, float]:
        """Weights of the metrics."""
        found = {criterion.name: criterion.weight for criterion in self.criteria}
        return found if self.rival is None else {**found, PREFERRED: self.rival_weight}


class Judgement(NamedTuple):
    """Judgement of one judge on one output."""

    values: Mapping[str, float]
    findings: tuple[Finding, ...]
    contradicted: bool = False
    """True if the judge preferred different answers in the two orders."""


def rubric_request(sheet: Sheet, output: str, case: Case, seed: int) -> ModelRequest:
    """Request a value on every scale, each after its reason."""
    told = _told(sheet, sheet.prompt or prompt("judge"))
    parts = [told, "# Criteria", *map(_described, sheet.criteria)]
    shown = [*_given(sheet, case)]
    if sheet.reference is not None:
        parts.append("The reference is an answer that is known to be good. It is not the only one.")
        shown.append(("reference", _field(case, sheet.reference)))
    shown.append(("output", output))
    return _request(sheet, parts, shown, _schema(sheet.criteria), seed)


def pair_request(sheet: Sheet, output: str, case: Case, seed: int, *, first: bool) -> ModelRequest:
    """Request a choice between two answers, with the output first or second."""
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
    """Read values and reasons from a reply that fits the schema."""
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
    """Combine two replies: with the output as the first answer, and as the second."""
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
        # the reason first: a model's level then follows from its reason
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
