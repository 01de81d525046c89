"""GSM8K: grade-school word problems whose answer is one number, in rows `question`, `answer`.

The expected number stands behind `####`. A reply is taken at its `<answer>`, at what stands behind
`####`, or at its last number; one without any number cannot be graded.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path

from kept.core.case import Case
from kept.core.rollout import Failure, Rollout
from kept.evaluators.environments.contract import Environment, Graded, Item, Posed
from kept.evaluators.environments.fields import Fields, as_items, item, values
from kept.evaluators.environments.opened import About
from kept.evaluators.environments.reading import rows_in
from kept.evaluators.environments.replying import quoted
from kept.evaluators.environments.skills import initial

SYSTEM = """\
You solve word problems. Work step by step, then give the final number alone between <answer> and
</answer>."""

_NUMBER = re.compile(r"[-+]?\$?\s?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|[-+]?\$?\.\d+")
_MARK = "####"
_TAG = re.compile(r"<answer>(.*?)(?:</answer>|\Z)", re.DOTALL | re.IGNORECASE)


@dataclass(frozen=True)
class Gsm8k(Environment):
    """One problem a case."""

    name = "gsm8k"
    data = (
        "GSM8K (github.com/openai/grade-school-math): a file of rows (question, answer with the "
        "number behind ####) as `env.data_path`; or with `split_mode: split_dir` such rows in "
        "train/, val/ and test/ below `env.split_dir`"
    )

    def skill(self) -> Mapping[str, str]:
        """A few lines to begin with."""
        return initial("gsm8k")

    def read(self, path: Path) -> Iterable[Item]:
        """Problems of JSON lines, JSON or CSV."""
        fields = Fields()
        return as_items(fields, self._items(path, fields))

    def _items(self, path: Path, fields: Fields) -> Iterator[Item]:
        for row in rows_in(path):
            question, answer = fields.text(row, ("question",)), fields.text(row, ("answer",))
            if question is None or answer is None:
                continue
            if number_in(answer) is None:
                fields.wrong(row, "`answer` has no number")
                continue
            yield item(row, {"question": question, "answer": answer})

    def pose(self, case: Case) -> Posed:
        """The problem as it stands."""
        return Posed(values(case)["question"], SYSTEM)

    def grade(self, case: Case, rollout: Rollout) -> Graded | Failure:
        """Right or wrong; numbers are compared as numbers."""
        found = number_in(rollout.output)
        if found is None:
            return Failure("parse", "candidate", "there is no number in the answer")
        right = float(found == number_in(values(case)["answer"]))
        why = "" if right else f"{quoted(_plain(found))} is not the number that was expected"
        return Graded(right, right, why)

    def about(self, case: Case) -> About:
        """The problem, and its worked solution."""
        data = values(case)
        return About(data["question"], "word problem", data["answer"])


def number_in(text: str) -> Decimal | None:
    """The number that a text comes to; None where it has none."""
    tagged = _TAG.findall(text)
    if tagged:
        # a tag is taken at its word: what was worked out before it is no answer
        return _last(tagged[-1])
    marked = text.rpartition(_MARK)[2] if _MARK in text else text
    return _last(marked) if _MARK not in text else _first(marked)


def _first(text: str) -> Decimal | None:
    found = _NUMBER.search(text)
    return _decimal(found[0]) if found else None


def _last(text: str) -> Decimal | None:
    found = _NUMBER.findall(text)
    return _decimal(found[-1]) if found else None


def _decimal(text: str) -> Decimal | None:
    try:
        return Decimal(re.sub(r"[$,\s]", "", text)).normalize()
    except InvalidOperation:
        return None


def _plain(number: Decimal) -> str:
    return f"{number:f}"
