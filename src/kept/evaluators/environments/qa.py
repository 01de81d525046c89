"""Question answering: BIG-Bench Hard, GSM8K and SearchQA.

Answers are compared as SQuAD does: case, punctuation, articles and blanks do not matter.

BIG-Bench Hard: puzzles in files `TASK.json` with `examples` of `input` and `target`. The file
gives the type of its cases. A target is a choice `(B)`, a word such as `Yes` or `True`, a number,
or a text; each is compared by its type.

GSM8K: grade-school word problems with one number as answer, in rows `question`, `answer`. The
expected number stands behind `####`. A reply is read at its `<answer>`, behind `####`, or at its
last number; one without any number cannot be graded.

SearchQA: trivia questions with search passages; answers are a few words. Rows have `question`,
`answers` (or `answer`) and `context`, passages behind `[DOC]` marks; `id` or `key` identifies
them. Context is cut by whole passages, which prompt and trace mention.
"""

import re
import string
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path

from kept.core.case import Case
from kept.core.rollout import Failure, Rollout
from kept.core.text import count
from kept.evaluators.environments.base import (
    About,
    Environment,
    Graded,
    Item,
    Posed,
    TurnOptions,
    initial,
)
from kept.evaluators.environments.chat_student import answer_in, quoted
from kept.evaluators.environments.datasets import (
    Fields,
    Row,
    as_items,
    id_of,
    item,
    rows_in,
    values,
)

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_MARKS = str.maketrans("", "", string.punctuation)


@dataclass(frozen=True, slots=True)
class Likeness:
    """Similarity of an answer to the best of the expected ones."""

    exact: float
    f1: float
    inside: float
    """1 if the answer contains an expected answer."""


_SAME = Likeness(1.0, 1.0, 1.0)


def normal(text: str) -> str:
    """Text in lower case, without punctuation, articles and extra blanks."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_MARKS)).split())


def exact(answer: str, gold: str) -> float:
    """1 if both texts are the same after `normal`."""
    return float(normal(answer) == normal(gold))


def token_f1(answer: str, gold: str) -> float:
    """F1 of the words of two texts."""
    return _f1(normal(answer).split(), normal(gold).split())


def likeness(answer: str, golds: Sequence[str]) -> Likeness:
    """Best of each measure over all expected answers."""
    said, wanted = normal(answer), [normal(gold) for gold in golds]
    if said and said in wanted:
        return _SAME
    words, padded = said.split(), f" {said} "
    return Likeness(
        max(float(said == gold) for gold in wanted),
        max(_f1(words, gold.split()) for gold in wanted),
        float(any(f" {gold} " in padded for gold in wanted if gold)),
    )


def _f1(ours: Sequence[str], theirs: Sequence[str]) -> float:
    if not ours or not theirs:
        # texts of articles only are empty by now: equal to each other, unlike all others
        return float(ours == theirs)
    if set(ours).isdisjoint(theirs):
        return 0.0
    both = sum((Counter(ours) & Counter(theirs)).values())
    return 2 * both / (len(ours) + len(theirs))


BBH_SYSTEM = """\
You solve puzzles. Think step by step, then give the answer alone between <answer> and </answer>.
Where there are options with letters, the answer is the letter in brackets, as in (B)."""

_CHOICE = re.compile(r"\(([A-Z])\)")
_LETTER = re.compile(r"\A\(?([A-Za-z])\)?(?:[.:)\s].*)?\Z", re.DOTALL)
_SPLIT = ("items", "train", "val", "test")
"""File names that say nothing about the task."""


@dataclass(frozen=True)
class Bbh(Environment):
    """BIG-Bench Hard environment: one case is one puzzle."""

    name = "bbh"
    data = (
        "BIG-Bench Hard (github.com/suzgunmirac/BIG-Bench-Hard): a JSON file of its folder bbh/, "
        "or that folder, as `env.data_path` (rows with input and target); or with `split_mode: "
        "split_dir` such rows in train/, val/ and test/ below `env.split_dir`"
    )

    def skill(self) -> Mapping[str, str]:
        """Return the initial skill, a few lines."""
        return initial("bbh")

    def read(self, path: Path) -> Iterable[Item]:
        """Puzzles of one task, or of all tasks of a folder."""
        fields = Fields()
        return as_items(fields, self._items(path, fields))

    def _items(self, path: Path, fields: Fields) -> Iterator[Item]:
        for row in rows_in(path):
            puzzle, target = fields.text(row, ("input",)), fields.texts(row, ("target",))
            if puzzle is not None and target is not None:
                data = {"input": puzzle, "target": target[0], "task": _task(row)}
                yield item(row, data)

    def pose(self, case: Case) -> Posed:
        """The puzzle as it stands."""
        return Posed(values(case)["input"], BBH_SYSTEM)

    def grade(self, case: Case, rollout: Rollout) -> Graded | Failure:
        """Grade right or wrong; for a target of several words, `soft` is their F1."""
        answer = answer_in(rollout.output)
        if isinstance(answer, Failure):
            return answer
        target = values(case)["target"]
        right = float(same(answer, target))
        one_word = len(target.split()) <= 1
        soft = right if right or one_word else token_f1(answer, target)
        why = "" if right else f"{quoted(answer)} is not the answer that was expected"
        return Graded(right, soft, why)

    def about(self, case: Case) -> About:
        """The puzzle, its task, and what was expected."""
        data = values(case)
        return About(data["input"], data["task"], data["target"])


def same(answer: str, target: str) -> bool:
    """True if an answer is the target, compared by the type of the target."""
    choice = _CHOICE.fullmatch(target)
    if choice is not None:
        marked = _CHOICE.findall(answer)
        plain = _LETTER.match(answer.strip())
        said = marked[-1] if marked else plain[1].upper() if plain else ""
        return said == choice[1]
    return _bare(answer) == _bare(target)


def _bare(text: str) -> str:
    return " ".join(text.casefold().strip().strip(".!\"'`*").split())


def _task(row: Row) -> str:
    """Task that a row names, else the name of its file."""
    told = row.data.get("task")
    if isinstance(told, str) and told:
        return told
    if row.path.stem not in _SPLIT:
        return row.path.stem
    return id_of(row).rpartition("-")[0] or "bbh"


GSM8K_SYSTEM = """\
You solve word problems. Work step by step, then give the final number alone between <answer> and
</answer>."""

_NUMBER = re.compile(r"[-+]?\$?\s?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|[-+]?\$?\.\d+")
_MARK = "####"
_TAG = re.compile(r"<answer>(.*?)(?:</answer>|\Z)", re.DOTALL | re.IGNORECASE)


@dataclass(frozen=True)
class Gsm8k(Environment):
    """GSM8K environment: one case is one problem."""

    name = "gsm8k"
    data = (
        "GSM8K (github.com/openai/grade-school-math): a file of rows (question, answer with the "
        "number behind ####) as `env.data_path`; or with `split_mode: split_dir` such rows in "
        "train/, val/ and test/ below `env.split_dir`"
    )

    def skill(self) -> Mapping[str, str]:
        """Return the initial skill, a few lines."""
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
        return Posed(values(case)["question"], GSM8K_SYSTEM)

    def grade(self, case: Case, rollout: Rollout) -> Graded | Failure:
        """Right or wrong; numbers are compared as numbers."""
        found = number_in(rollout.output)
        if found is None:
            return Failure("parse", "candidate", "there is no number in the answer")
        right = float(found == number_in(values(case)["answer"]))
        why = "" if right else f"{quoted(f'{found:f}')} is not the number that was expected"
        return Graded(right, right, why)

    def about(self, case: Case) -> About:
        """The problem, and its worked solution."""
        data = values(case)
        return About(data["question"], "word problem", data["answer"])


def number_in(text: str) -> Decimal | None:
    """Final number of a text; None if it has none."""
    tagged = _TAG.findall(text)
    if tagged:
        # only the tag counts: numbers before it are no answer
        return _last(tagged[-1])
    if _MARK not in text:
        return _last(text)
    found = _NUMBER.search(text.rpartition(_MARK)[2])
    return _decimal(found[0]) if found else None


def _last(text: str) -> Decimal | None:
    found = _NUMBER.findall(text)
    return _decimal(found[-1]) if found else None


def _decimal(text: str) -> Decimal | None:
    try:
        return Decimal(re.sub(r"[$,\s]", "", text)).normalize()
    except InvalidOperation:
        return None


DOC = "[DOC]"

SEARCHQA_SYSTEM = """\
You answer trivia questions. You may be given passages that a search engine found; some are beside
the point. Think as long as you need, then give the answer alone, as few words as it takes, between
<answer> and </answer>."""

AGAIN = """\
Look at the question and the passages once more. If the answer should change, change it; in any
case give the final answer between <answer> and </answer>."""


@dataclass(frozen=True)
class SearchQa(TurnOptions):
    """SearchQA environment: one case is one question."""

    max_context_chars: int = 6000
    """Maximum length of the passages in characters; 0 for no limit."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_context_chars < 0:
            raise ValueError("`max_context_chars` is less than 0")

    name = "searchqa"
    again = AGAIN
    data = (
        "SearchQA (huggingface.co/datasets/lucadiliello/searchqa): rows (question, answers, "
        "context; id or key) as JSON, JSON lines or CSV, in train/, val/ and test/ below "
        "`env.split_dir`; or with `split_mode: ratio` a file of them as `env.data_path`"
    )

    def skill(self) -> Mapping[str, str]:
        """Return the initial skill, a few lines."""
        return initial("searchqa")

    def read(self, path: Path) -> Iterable[Item]:
        """Questions of JSON, JSON lines or CSV."""
        fields = Fields()
        return as_items(fields, self._items(path, fields))

    def _items(self, path: Path, fields: Fields) -> Iterator[Item]:
        for row in rows_in(path):
            question = fields.text(row, ("question",))
            golds = fields.texts(row, ("answers", "answer"))
            context = row.data.get("context") or ""
            if not isinstance(context, str):
                fields.wrong(row, "`context` is no text")
                continue
            if question is not None and golds is not None:
                data: dict[str, object] = {"question": question, "answers": golds}
                yield item(row, {**data, "context": context})

    def pose(self, case: Case) -> Posed:
        """Prompt with the passages, then the question."""
        data = values(case)
        context, left = cut_documents(data["context"], self.max_context_chars)
        parts = [f"Passages:\n\n{context}"] if context else []
        notes: tuple[str, ...] = ()
        if left:
            parts.append(f"[{left}]")
            notes = (f"{left}: the limit is {self.max_context_chars:,} characters",)
        parts.append(f"Question: {data['question']}")
        return Posed("\n\n".join(parts), SEARCHQA_SYSTEM, notes=notes)

    def grade(self, case: Case, rollout: Rollout) -> Graded | Failure:
        """Exact match is hard, the overlap of words is soft."""
        answer = answer_in(rollout.output)
        if isinstance(answer, Failure):
            return answer
        found = likeness(answer, values(case)["answers"])
        why = "" if found.exact else f"{quoted(answer)} is not the answer that was expected"
        metrics = {"em": found.exact, "f1": found.f1, "sub_em": found.inside}
        told = f"exact match {found.exact:g}, F1 {found.f1:.2f}"
        return Graded(found.exact, found.f1, why, told, metrics)

    def about(self, case: Case) -> About:
        """The question, and what was expected."""
        data = values(case)
        golds: list[str] = data["answers"]
        return About(data["question"], "searchqa", " | ".join(golds), golds=tuple(golds))


def cut_documents(context: str, most: int) -> tuple[str, str]:
    """First passages that fit as a whole, and a note on what was left out."""
    documents = [one.strip() for one in context.split(DOC)]
    documents = [one for one in documents if one]
    kept: list[str] = []
    used = 0
    for document in documents:
        piece = f"{DOC} {document}"
        if most and used + len(piece) > most:
            break
        kept.append(piece)
        used += len(piece) + 1
    left = len(documents) - len(kept)
    if not kept and documents:
        first = documents[0][: most - len(DOC) - 1].rsplit(" ", 1)[0]
        return f"{DOC} {first}", f"the first passage is cut short, {left - 1} more are left out"
    if not left:
        return "\n".join(kept), ""
    verb = "is" if left == 1 else "are"
    return "\n".join(kept), f"{count(left, 'more passage')} {verb} left out"
