"""DocVQA: a question about a scanned page; answers are graded by their edit distance (ANLS).

Rows are those of a prepared CSV split (`questionId`, `question`, `answer`, `image_path`), or of an
official file of version 1.0 (`questionId`, `question`, `answers`, `image`).
"""

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from kept.core.case import Case
from kept.core.rollout import Failure, Rollout
from kept.evaluators.environments.base import About, Graded, Item, Posed, TurnOptions, initial
from kept.evaluators.environments.chat_student import answer_or_last_line, quoted
from kept.evaluators.environments.datasets import IDS, Fields, Row, as_items, item, rows_in, values
from kept.evaluators.environments.pictures import ImageDetail, find_picture, load_picture

SYSTEM = """\
You answer questions about a scanned page. Look at the page and give the answer as it stands there,
in as few words as it takes, between <answer> and </answer>."""

ASK = "Return the final answer inside <answer>...</answer>."

AGAIN = """\
Look at the page once more. If the answer should change, change it; in any case give the final
answer between <answer> and </answer>."""

PAGE_MARK = "document_path:"
"""Marker in a question before the path of its page, if no column has the path."""

RIGHT = 0.999
"""Minimum similarity of an answer that solves a case."""

NEAR = 0.5
"""Normalised distance from which on an answer scores 0 (ANLS threshold)."""

MOST_LITERAL = 20_000
"""Maximum size of a column that is read as a Python list of answers."""


@dataclass(frozen=True)
class DocVqa(TurnOptions):
    """DocVQA environment: one case is one question about one page."""

    image_detail: ImageDetail = "auto"
    data_root: Path = Path()
    """Base folder of page paths; pages beside the file are found as well."""

    name = "docvqa"
    again = AGAIN
    data = (
        "DocVQA (single page, version 1.0; rrc.cvc.uab.es/?ch=17, or "
        "huggingface.co/datasets/lmms-lab/DocVQA): below `env.split_dir` the folders "
        "train/, val/ and test/, each with a CSV file (questionId, question, answer, image_path), "
        "and the page pictures where image_path says, from `env.data_root`; or with "
        "`split_mode: ratio` an official JSON file as `env.data_path`, its pictures beside it"
    )

    def skill(self) -> Mapping[str, str]:
        """Return the initial skill, a few lines."""
        return initial("docvqa")

    def read(self, path: Path) -> Iterable[Item]:
        """Questions of CSV or JSON, each with its page."""
        fields = Fields()
        return as_items(fields, self._items(path, fields))

    def _items(self, path: Path, fields: Fields) -> Iterator[Item]:
        for row in rows_in(path):
            given = fields.text(row, ("question",))
            golds = _golds(fields, row)
            if given is None:
                continue
            question, _, page = given.partition(PAGE_MARK)
            named = row.data.get("image_path") or row.data.get("image") or page.strip()
            picture = find_picture(fields, row, named, self.data_root)
            if picture is None or golds is None:
                continue
            kind = str(row.data.get("topic") or row.data.get("category") or "docvqa")
            data: dict[str, object] = {"question": question.strip(), "answers": golds}
            yield item(row, {**data, "image": picture, "topic": kind}, names=("questionId", *IDS))

    def pose(self, case: Case) -> Posed:
        """Prompt with the question and the page."""
        data = values(case)
        page = load_picture(data["image"], self.data_root, self.image_detail)
        return Posed.of([f"{data['question']}\n\n{ASK}", page], SYSTEM)

    def grade(self, case: Case, rollout: Rollout) -> Graded | Failure:
        """The similarity to the nearest expected answer; only the same answer is hard."""
        answer = answer_or_last_line(rollout.output)
        if isinstance(answer, Failure):
            return answer
        found = anls(answer, values(case)["answers"])
        hard = float(found >= RIGHT)
        why = "" if hard else f"{quoted(answer)} is not the answer that was expected"
        return Graded(hard, found, why, f"ANLS {found:.3g}", {"anls": found})

    def about(self, case: Case) -> About:
        """The question, what it is about, and what was expected."""
        data = values(case)
        golds: list[str] = data["answers"]
        return About(data["question"], data["topic"], " | ".join(golds), golds=tuple(golds))


def anls(answer: str, golds: Iterable[str]) -> float:
    """Average normalised Levenshtein similarity of one answer: to the nearest of those expected."""
    said = _normal(answer)
    return max((_similarity(said, _normal(gold)) for gold in golds), default=0.0)


def levenshtein(one: str, other: str) -> int:
    """Edit distance: letters to insert, delete or replace."""
    if len(one) < len(other):
        one, other = other, one
    # one row of the table at a time; the shorter text makes the row
    before = list(range(len(other) + 1))
    for n, letter in enumerate(one, 1):
        row = [n]
        for m, wanted in enumerate(other, 1):
            replaced = before[m - 1] + (letter != wanted)
            row.append(min(before[m] + 1, row[m - 1] + 1, replaced))
        before = row
    return before[-1]


def _similarity(answer: str, gold: str) -> float:
    longest = max(len(answer), len(gold))
    if not longest:
        return 1.0
    # the distance is at least the difference in length: long answers cost no time
    if abs(len(answer) - len(gold)) / longest >= NEAR:
        return 0.0
    distance = levenshtein(answer, gold) / longest
    return 1.0 - distance if distance < NEAR else 0.0


def _normal(text: str) -> str:
    return " ".join(text.lower().split())


def _golds(fields: Fields, row: Row) -> Sequence[str] | None:
    """Expected answers; a column may hold a Python list."""
    for name in ("answers", "answer", "ground_truth"):
        value = row.data.get(name)
        if isinstance(value, str) and value.strip().startswith("["):
            said: object = value
            if len(value) <= MOST_LITERAL:
                with suppress(ValueError, SyntaxError, MemoryError, RecursionError):
                    said = ast.literal_eval(value.strip())
            return fields.texts(replaced(row, name, said), (name,))
    return fields.texts(row, ("answers", "answer", "ground_truth"))


def replaced(row: Row, name: str, value: object) -> Row:
    """A row with another value."""
    return replace(row, data={**row.data, name: value})
