"""MMRB: questions over several pictures, which stand in their places in the text.

Rows are those of the files `*_human.json`. Choices are graded by their label, all else by equality
of words and numbers.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypedDict, cast

from kept.core.case import Case
from kept.core.llm import Image
from kept.core.rollout import Failure, Rollout
from kept.evaluators.environments.answers import TWICE, Choice, alike, bare, choices_in, chosen
from kept.evaluators.environments.base import (
    About,
    Defect,
    Graded,
    Item,
    Posed,
    TurnOptions,
    initial,
)
from kept.evaluators.environments.chat_student import answer_in, boxed, quoted
from kept.evaluators.environments.datasets import (
    Fields,
    Row,
    as_items,
    files_in,
    id_of,
    rows_of,
    values,
)
from kept.evaluators.environments.pictures import ImageDetail, Picture, find_picture, load_picture

SYSTEM = """\
You answer questions about several pictures, which stand in their places in the text. Look at each
of them, compare them as the question asks, and give the final answer alone between <answer> and
</answer>."""

ASK_CHOICE = "Give the letter of the one right choice inside <answer>...</answer>."
ASK_FREE = "Give the short final answer inside <answer>...</answer>."

AGAIN = """\
Look at all pictures once more. If the answer should change, change it; in any case give the final
answer between <answer> and </answer>."""

FILES = "*_human.json"

_PLACE = re.compile(r"\{image#(\d+)\}", re.IGNORECASE)
_OPTION = re.compile(r"\s*(?:\(\s*([A-Z])\s*\)|([A-Z])\s*[.):])\s*(.*)", re.DOTALL)
_LETTER = re.compile(r"\W*[A-Z]\W*", re.IGNORECASE)
_BRACKETS = re.compile(r"\banswer\s*\[([^\[\]]*)\]", re.IGNORECASE)
_SAID = tuple(
    re.compile(rf"\b{words}[ \t]*+:?+[ \t]*+(\S.*)", re.IGNORECASE)
    for words in (r"final answer\s+is", r"the answer\s+is", r"answer[ \t]*:")
)
_WORD = re.compile(r"(?<![\w.])[-+]?\d+(?:[.,:/]\d+)*%?|[^\W_]+")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")


class Question(TypedDict):
    """Fields of a case."""

    question: str
    answer: list[str]
    images: list[Picture]
    options: list[str]
    source: str
    subtask: str
    question_type: str


@dataclass(frozen=True)
class Mmrb(TurnOptions):
    """MMRB environment: one case is one question over several pictures."""

    image_detail: ImageDetail = "auto"
    data_root: Path = Path()
    """Base folder of picture paths; a picture beside the file comes first."""
    free_form: Literal["equal", "contains"] = "equal"
    """`contains` takes an answer that holds the expected one, or is a part of it."""

    name = "mmrb"
    again = AGAIN
    data = (
        "MMRB (huggingface.co/datasets/HarrytheOrange/MMRB): "
        "JSON files *_human.json in any folders below `env.data_path`, "
        "each a list of rows (source, subtask, index, question, options, answer, image_paths), and "
        "the pictures beside each file as image_paths says; or with `split_mode: split_dir` such "
        "rows in train/, val/ and test/ below `env.split_dir`"
    )

    def skill(self) -> Mapping[str, str]:
        """Return the initial skill, a few lines."""
        return initial("mmrb")

    def read(self, path: Path) -> Iterable[Item]:
        """Questions of a file, or of all such files of a folder, however deep."""
        fields = Fields()
        return as_items(fields, self._items(path, fields))

    def _items(self, path: Path, fields: Fields) -> Iterator[Item]:
        deep = sorted(path.rglob(FILES)) if path.is_dir() else []
        for file in deep or files_in(path):
            for row in rows_of(file):
                question = fields.text(row, ("question",))
                pictures = self._pictures(fields, row)
                golds = fields.texts(row, ("answer",))
                if question is None or pictures is None or golds is None:
                    continue
                data: Question = {
                    "question": question,
                    "answer": golds,
                    "images": pictures,
                    "options": _texts(row),
                    "source": str(row.data.get("source") or ""),
                    "subtask": str(row.data.get("subtask") or ""),
                    "question_type": str(row.data.get("question_type") or ""),
                }
                if _is_fit(fields, row, data):
                    parts = (str(row.data.get(name, "")) for name in ("source", "subtask", "index"))
                    numbered = row.data.get("index") is not None
                    yield Item(Case(":".join(parts) if numbered else id_of(row), data), row.where)

    def _pictures(self, fields: Fields, row: Row) -> list[Picture] | None:
        """All pictures of a row in order; None, and problems, if any is missing."""
        given = row.data.get("images", row.data.get("image_paths"))
        named = cast("list[object]", given) if isinstance(given, list) else []
        if not named:
            fields.wrong(row, "it has no pictures in `image_paths`")
            return None
        found: list[Picture | None] = []
        for one in named:
            # first beside the row's file: folders have pictures of the same names
            place = row.path.parent / one if isinstance(one, str) else None
            path = str(place.resolve()) if place is not None and place.is_file() else one
            found.append(find_picture(fields, row, path, self.data_root))
        whole = [one for one in found if one is not None]
        return whole if len(whole) == len(found) else None

    def defects(self, items: Sequence[Item]) -> Iterable[Defect]:
        """Choices of which two have one text."""
        for case, _ in items:
            choices, right = _choices(values(case)), _right(values(case))
            if sum(alike(one.label, right, choices) for one in choices) > 1:
                yield Defect(case.id, TWICE)

    def pose(self, case: Case) -> Posed:
        """The question with each picture in its place, then the pictures without one."""
        data: Question = values(case)
        loaded = [load_picture(one, self.data_root, self.image_detail) for one in data["images"]]
        ask = ASK_CHOICE if _is_choice(data) else ASK_FREE
        return Posed.of([*_interleaved(_asked(data), loaded), f"\n\n{ask}"], SYSTEM)

    def grade(self, case: Case, rollout: Rollout) -> Graded | Failure:
        """The right label, or the same words."""
        data = values(case)
        answer = answer_of(rollout.output)
        if isinstance(answer, Failure):
            return answer
        if _is_choice(data):
            choices = _choices(data)
            label = chosen(answer, choices)
            if not label:
                return Failure("parse", "candidate", f"{quoted(answer)} is none of the choices")
            hard = float(alike(label, _right(data), choices))
            return Graded(hard, hard, "" if hard else f"{label} is not the right choice")
        golds: list[str] = data["answer"]
        within = any(contains(answer, gold) for gold in golds)
        same = any(same_words(answer, gold) for gold in golds)
        hard = float(within if self.free_form == "contains" else same)
        why = "" if hard else f"{quoted(answer)} is not the answer that was expected"
        return Graded(hard, hard, why, metrics={"contains": float(within)})

    def about(self, case: Case) -> About:
        """The question, where it is from, and what was expected."""
        data = values(case)
        kind = " / ".join(one for one in (data["source"], data["subtask"]) if one) or self.name
        golds: list[str] = data["answer"]
        if not _is_choice(data):
            return About(_asked(data), kind, " | ".join(golds), golds=tuple(golds))
        label = _right(data)
        text = dict(_choices(data)).get(label, "")
        told = f"choice {label}" + (f": {text}" if text else "")
        return About(_asked(data), kind, told, golds=(text or told,))


def answer_of(text: str) -> str | Failure:
    """The answer in tags, `Answer[...]`, a box, a letter alone or `answer is`; else all of it."""
    if "<answer>" in text.lower():
        return answer_in(text)
    brackets = _BRACKETS.findall(text)
    inner = brackets[-1].strip() if brackets else boxed(text)
    if inner:
        return inner
    if not _LETTER.fullmatch(text):
        for pattern in _SAID:
            if found := pattern.findall(text):
                return answer_in(found[-1])
    return answer_in(text)


def same_words(answer: str, gold: str) -> bool:
    """True where words and numbers are the same: case and punctuation apart."""
    return _words(answer) == _words(gold)


def contains(answer: str, gold: str) -> bool:
    """True if one text is part of the other, letter by letter."""
    one, other = _words(answer), _words(gold)
    return bool(one and other) and (one in other or other in one)


def _words(text: str) -> str:
    plain = _THOUSANDS.sub("", bare(text).casefold())
    # without words or numbers only the signs are left to compare
    return " ".join(_WORD.findall(plain)) or " ".join(plain.split())


def _interleaved(question: str, loaded: Sequence[Image]) -> Iterator[str | Image]:
    done = 0
    shown: set[int] = set()
    for place in _PLACE.finditer(question):
        yield question[done : place.start()]
        yield loaded[int(place[1]) - 1]
        shown.add(int(place[1]))
        done = place.end()
    yield question[done:]
    for n, image in enumerate(loaded, 1):
        if n not in shown:
            yield f"\n\n[Additional picture {n}]\n"
            yield image


def _is_fit(fields: Fields, row: Row, data: Question) -> bool:
    """True where every place has its picture, and the answer is one of the choices."""
    most = len(data["images"])
    numbers = [int(number) for number in _PLACE.findall(_asked(data))]
    wrong = [
        f"`{{image#{n}}}` is none of its {most} pictures"
        for n in dict.fromkeys(numbers)
        if not 1 <= n <= most
    ]
    choices = _choices(data)
    if len({choice.label for choice in choices}) < len(choices):
        wrong.append("two of its `options` have one label")
    elif _is_choice(data) and not _right(data):
        said = quoted(", ".join(data["answer"]))
        wrong.append(f"the `answer` {said} is none of the {len(choices)} choices")
    for message in wrong:
        fields.wrong(row, message)
    return not wrong


def _is_choice(data: Question) -> bool:
    return bool(data["options"]) or "choice" in data["question_type"].lower()


def _right(data: Question) -> str:
    """Label of the right choice; empty if the answer is none of them."""
    return chosen(data["answer"][0], _choices(data)) if _is_choice(data) else ""


def _choices(data: Question) -> list[Choice]:
    """The choices with their labels, which are part of their texts in the published files."""
    found = choices_in(data["options"])
    marked = [_OPTION.fullmatch(choice.text) for choice in found]
    read = [Choice(one[1] or one[2], one[3].strip()) for one in marked if one]
    return read if len(read) == len(found) else found


def _asked(data: Question) -> str:
    """Question with its choices, which are added if they are not in it."""
    question = data["question"]
    choices = _choices(data)
    there = " ".join(question.split())
    if all(" ".join(choice.text.split()) in there for choice in choices):
        return question
    return question + "\n" + "".join(f"\n({choice.label}) {choice.text}" for choice in choices)


def _texts(row: Row) -> list[str]:
    """Options as texts; with their labels if the row gives them separately."""
    given = row.data.get("options")
    found = choices_in(given)
    if isinstance(given, list) and all(isinstance(one, str) for one in cast("list[object]", given)):
        return [choice.text for choice in found]
    return [f"({choice.label}) {choice.text}" for choice in found]
