"""Generic environment for any file of questions and answers.

`question_field` and `answer_field` name the columns. `type_field` names a column with the kind of
a case, `context_field` one that is shown above the question. `measure` is `exact`, `f1`,
`contains` or `number`. To use metrics of agent tests instead, the caller passes their scorer.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kept.core.case import Case
from kept.core.rollout import Failure, Rollout
from kept.evaluators.environments.base import About, Environment, Graded, Item, Posed, initial
from kept.evaluators.environments.chat_student import answer_in, quoted
from kept.evaluators.environments.datasets import Fields, Row, as_items, item, rows_in, values
from kept.evaluators.environments.qa import likeness, number_in

Measure = Literal["exact", "f1", "contains", "number"]

SYSTEM = "Give the answer alone between <answer> and </answer>."


@dataclass(frozen=True)
class Jsonl(Environment):
    """Generic environment: one case is one row."""

    question_field: str = "question"
    answer_field: str = "answer"
    context_field: str = ""
    type_field: str = ""
    measure: Measure = "exact"
    """Rule by which an answer is right."""
    system: str = SYSTEM
    """System prompt before the skill; it says how to mark the answer."""

    name = "jsonl"

    def skill(self) -> Mapping[str, str]:
        """Almost empty initial skill: the questions are not known."""
        return initial("jsonl")

    def read(self, path: Path) -> Iterable[Item]:
        """Rows of JSON lines, JSON or CSV."""
        fields = Fields()
        return as_items(fields, self._items(path, fields))

    def _items(self, path: Path, fields: Fields) -> Iterator[Item]:
        for row in rows_in(path):
            question = fields.text(row, (self.question_field,))
            golds = fields.texts(row, (self.answer_field,))
            more = {name: self._optional(row, name, fields) for name in self._optionals}
            if question is not None and golds is not None and None not in more.values():
                data = {self.question_field: question, self.answer_field: golds, **more}
                yield item(row, data)

    @property
    def _optionals(self) -> list[str]:
        return [name for name in (self.context_field, self.type_field) if name]

    def _optional(self, row: Row, name: str, fields: Fields) -> str | None:
        value = row.data.get(name)
        if value is None:
            fields.wrong(row, f"there is no `{name}`")
            return None
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

    def pose(self, case: Case) -> Posed:
        """The question, below its context."""
        data = values(case)
        context = f"{data[self.context_field]}\n\n" if self.context_field else ""
        return Posed(f"{context}{data[self.question_field]}", self.system)

    def grade(self, case: Case, rollout: Rollout) -> Graded | Failure:
        """Grade an answer by `measure`."""
        answer = answer_in(rollout.output)
        if isinstance(answer, Failure):
            return answer
        golds: list[str] = values(case)[self.answer_field]
        if self.measure == "number":
            return _number(answer, golds)
        found = likeness(answer, golds)
        right = {"exact": found.exact, "contains": found.inside}.get(
            self.measure, float(found.f1 == 1)
        )
        soft = 1.0 if right else found.f1
        why = "" if right else f"{quoted(answer)} is not the answer that was expected"
        metrics = {"em": found.exact, "f1": found.f1, "sub_em": found.inside}
        return Graded(right, soft, why, metrics=metrics)

    def about(self, case: Case) -> About:
        """The question, its kind, and what was expected."""
        data = values(case)
        kind = data[self.type_field] if self.type_field else ""
        golds: list[str] = data[self.answer_field]
        return About(data[self.question_field], kind, " | ".join(golds), golds=tuple(golds))


def _number(answer: str, golds: Iterable[str]) -> Graded | Failure:
    found = number_in(answer)
    if found is None:
        return Failure("parse", "candidate", "there is no number in the answer")
    right = float(any(found == number_in(gold) for gold in golds))
    why = "" if right else f"{quoted(answer)} is not the number that was expected"
    return Graded(right, right, why)
