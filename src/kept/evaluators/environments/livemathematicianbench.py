"""LiveMathematicianBench: multiple-choice questions about theorems of recent papers.

Rows are those of the files `qa_*_final.json`: `mcq` holds question, choices and the right choice.
Choices are shuffled, the same way in every rollout of a case.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from string import ascii_uppercase
from typing import Literal, cast

from kept.core.case import Case
from kept.core.rollout import Failure, Rollout
from kept.evaluators.environments.answers import Choice, choices_in, label_in, labelled, text_in
from kept.evaluators.environments.base import About, Graded, Item, Posed, TurnOptions, initial
from kept.evaluators.environments.chat_student import answer_or_last_line, quoted
from kept.evaluators.environments.datasets import (
    Fields,
    Row,
    as_items,
    files_in,
    id_of,
    rows_of,
    values,
)
from kept.evaluators.environments.standalone import AskedStudent, CaseResult, Json

SYSTEM = """\
You answer multiple-choice questions about research mathematics; exactly one choice is right. Think
the question through, then give the letter of that choice between <answer> and </answer>, as in
<answer>B</answer>."""

AGAIN = """\
Check the reasoning once more. If the choice should change, change it; in any case give the letter
of the final choice between <answer> and </answer>."""

OFFICIAL_SYSTEM = "You are a careful expert in mathematics."

OFFICIAL = """\
This is a multiple-choice question. Reason about it, and end with the letter of the right choice as
\\boxed{{X}}.

Question: {question}

Choices:
{choices}

Your answer:"""

FILES = "qa_*_final.json"

_BOXED = re.compile(r"\\boxed\{\s*+(?:\\text\{)?+\s*+\(?([A-Za-z])\)?")
_SAID = re.compile(r"answer\s+is:?\s*\**\(?([A-Z])\b", re.IGNORECASE)
_MARKED = re.compile(r"answer\s*:\s*\**\(?([A-Z])\b", re.IGNORECASE)
_LETTER = re.compile(r"\b([A-Z])\b")


@dataclass(frozen=True)
class LiveMathematicianBench(TurnOptions):
    """LiveMathematicianBench environment: one case is one question."""

    shuffle_choices: bool = True
    shuffle_seed: int = 42
    use_theorem: bool = False
    """Show the theorem that the question is made from."""
    use_sketch: bool = False
    """Show the sketch of its proof."""
    prompt: Literal["current", "official"] = "current"
    """`official` asks as the benchmark does, and takes the answer from a box."""
    exec_timeout: float = 300.0
    """Seconds for one execution of an agent CLI."""

    name = "livemathematicianbench"
    again = AGAIN
    data = (
        "LiveMathematicianBench (huggingface.co/datasets/LiveMathematicianBench/"
        "LiveMathematicianBench): a JSON file qa_<month>_final.json a month, in "
        "any folders below `env.data_path`, each a list of rows with month, no and mcq (question, "
        "choices, correct_choice); or with `split_mode: split_dir` such rows in train/, val/ and "
        "test/ below `env.split_dir`"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.exec_timeout <= 0:
            raise ValueError("`exec_timeout` is not above 0")

    def exec_seconds(self) -> float:
        """Return `exec_timeout`."""
        return self.exec_timeout

    def skill(self) -> Mapping[str, str]:
        """Return the initial skill, a few lines."""
        return initial("livemathematicianbench")

    def read(self, path: Path) -> Iterable[Item]:
        """Questions of a file, or of all monthly files of a folder, however deep."""
        fields = Fields()
        return as_items(fields, self._items(path, fields))

    def _items(self, path: Path, fields: Fields) -> Iterator[Item]:
        monthly = sorted(path.rglob(FILES)) if path.is_dir() else []
        for file in monthly or files_in(path):
            for row in rows_of(file):
                question = fields.text(_with_mcq(row), ("question",))
                found = _choices(fields, _with_mcq(row))
                if question is None or found is None:
                    continue
                choices, right = found
                data: dict[str, object] = {"question": question, "choices": choices}
                kinds: object = row.data.get("theorem_type")
                if not isinstance(kinds, list):
                    kinds = [kinds] if kinds else []
                data["correct_choice"] = right
                data["theorem_type"] = [str(kind) for kind in cast("list[object]", kinds)]
                data |= {name: str(row.data.get(name) or "") for name in ("theorem", "sketch")}
                month, number = row.data.get("month"), row.data.get("no")
                if month is None or row.data.get("id") is not None:
                    name = id_of(row)
                else:
                    name = f"{month}:{row.number if number is None else number}"
                yield Item(Case(name, data), row.where)

    def pose(self, case: Case) -> Posed:
        """The question and its choices."""
        data = values(case)
        choices = "\n".join(f"{label}. {text}" for label, text in self._shown(case))
        if self.prompt == "official":
            return Posed(
                OFFICIAL.format(question=data["question"], choices=choices), OFFICIAL_SYSTEM
            )
        parts = [("Question", data["question"]), ("Choices", choices)]
        parts += [("Theorem", data["theorem"])] if self.use_theorem and data["theorem"] else []
        parts += [("Proof Sketch", data["sketch"])] if self.use_sketch and data["sketch"] else []
        return Posed("\n\n".join(f"## {title}\n{text}" for title, text in parts), SYSTEM)

    def grade(self, case: Case, rollout: Rollout) -> Graded | Failure:
        """Right or wrong."""
        label = self._label(case, rollout.output)
        if isinstance(label, Failure):
            return label
        right = float(label == self._right(case))
        return Graded(right, right, "" if right else f"{label} is not the right choice")

    def _label(self, case: Case, reply: str) -> str | Failure:
        """The choice that a reply means, by the label that it is shown with."""
        said = boxed_label(reply) if self.prompt == "official" else answer_or_last_line(reply)
        if isinstance(said, Failure):
            return said
        if label := label_of(said, self._shown(case)):
            return label
        return Failure("parse", "candidate", f"{quoted(said)} is none of the choices")

    def document(self, results: Sequence[CaseResult], asked: AskedStudent) -> Json:
        """Document in the format of `eval_livemathematicianbench_baseline`."""
        rows = sorted((self._result(one) for one in results), key=lambda row: row["id"])
        correct = sum(row["is_correct"] for row in rows)
        accuracy = correct / len(rows) if rows else 0.0
        return {
            "mode": self.prompt,
            "model": asked.model,
            "reasoning_effort": asked.reasoning_effort,
            "seed": self.shuffle_seed,
            "max_completion_tokens": asked.max_completion_tokens,
            "summary": {"correct": correct, "total": len(rows), "accuracy": accuracy},
            "results": rows,
        }

    def _result(self, result: CaseResult) -> Json:
        case = result.case
        texts, right = dict(self._shown(case)), self._right(case)
        label = None if result.failure else self._label(case, result.reply)
        predicted = label if isinstance(label, str) else None
        return {
            "id": case.id,
            "question": values(case)["question"],
            "correct_label": right,
            "correct_text": texts[right],
            "predicted_label": predicted,
            "predicted_text": texts[predicted] if predicted else "",
            "is_correct": predicted == right,
            "elapsed_seconds": result.seconds,
            "response": result.reply,
            **({"error": result.failure.message} if result.failure else {}),
        }

    def about(self, case: Case) -> About:
        """The question with its choices, its kind, and the right one."""
        data = values(case)
        right = self._right(case)
        texts = dict(self._shown(case))
        kind = ", ".join(data["theorem_type"]) or "livemathematicianbench"
        return About(self.pose(case).prompt, kind, right, golds=(texts[right],))

    def _shown(self, case: Case) -> list[Choice]:
        """The choices as the student sees them."""
        return labelled([choice.text for choice in self._order(case)])

    def _right(self, case: Case) -> str:
        """The label that the right choice is shown with."""
        wanted = values(case)["correct_choice"]
        before = [choice.label for choice in self._order(case)]
        return ascii_uppercase[before.index(wanted)]

    def _order(self, case: Case) -> list[Choice]:
        choices = labelled(values(case)["choices"])
        if not self.shuffle_choices:
            return choices

        def place(choice: Choice) -> bytes:
            words = f"{self.shuffle_seed}\0{case.id}\0{choice.label}"
            return hashlib.sha256(words.encode("utf-8", "surrogatepass")).digest()

        return sorted(choices, key=place)


def label_of(answer: str, choices: Sequence[Choice]) -> str:
    """The choice that an answer means, by its label, its text or its first word; else empty."""
    labels = {choice.label for choice in choices}
    plain = answer.strip().upper().lstrip("(").rstrip(".):")
    if plain in labels:
        return plain
    text = " ".join(answer.split()).casefold()
    for choice in choices:
        if " ".join(choice.text.split()).casefold() == text:
            return choice.label
    first = plain.split()[0].rstrip(".):") if plain.split() else ""
    return first if first in labels else ""


def boxed_label(text: str) -> str | Failure:
    """Letter in the last box, else after `answer is` or `Answer:`, else the last one."""
    for pattern in (_BOXED, _SAID, _MARKED, _LETTER):
        found = pattern.findall(text)
        if found:
            return str(found[-1]).upper()
    return Failure("parse", "candidate", "there is no letter of a choice in the reply")


def _with_mcq(row: Row) -> Row:
    """A row with the fields of its question at the top."""
    mcq = row.data.get("mcq")
    if not isinstance(mcq, dict):
        return row
    inner = {k: v for k, v in cast("dict[str, object]", mcq).items() if v is not None}
    return replace(row, data={**row.data, **inner})


def _choices(fields: Fields, row: Row) -> tuple[list[str], str] | None:
    """The texts of all choices in the order of their labels, and the label of the right one."""
    found = choices_in(row.data.get("choices"))
    right = row.data.get("correct_choice")
    if not found or right is None:
        fields.wrong(row, "there are no `choices`" if not found else "there is no `correct_choice`")
        return None
    if isinstance(right, dict):
        given = cast("dict[str, object]", right)
        wanted = Choice(label_in(given.get("label")), text_in(given))
    else:
        wanted = Choice(label_in(right), "")
    at = _place(found, wanted)
    if at is None and wanted.label and wanted.text:
        # the published files list the wrong choices only
        found = sorted([*found, wanted], key=lambda choice: choice.label)
        at = found.index(wanted)
    if at is None:
        fields.wrong(row, "the `correct_choice` is none of the choices")
        return None
    texts = [choice.text for choice in found]
    if texts.count(texts[at]) > 1:
        fields.wrong(row, "a wrong choice has the text of the right one")
        return None
    if len(found) > len(ascii_uppercase):
        fields.wrong(row, f"there are {len(found)} choices, over {len(ascii_uppercase)}")
        return None
    return texts, ascii_uppercase[at]


def _place(choices: Sequence[Choice], wanted: Choice) -> int | None:
    """Index of the right choice, by label and text or by the one that is given."""
    for at, choice in enumerate(choices):
        same_text = not wanted.text or choice.text == wanted.text
        if choice.label == wanted.label and same_text:
            return at
    texts = [choice.text for choice in choices]
    return texts.index(wanted.text) if wanted.text in texts else None
