"""BabyVision: questions about a picture that small children can answer.

Rows are those of `meta_data.jsonl`: a question, its picture, and a choice or a short text as the
answer, which is given in a box.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import ascii_uppercase
from typing import Literal, cast

from kept.core.case import Case
from kept.core.rollout import Failure, Rollout
from kept.evaluators.environments.answers import (
    TWICE,
    Choice,
    alike,
    bare,
    choices_in,
    chosen,
    judged,
    label_in,
    labelled,
    text_in,
)
from kept.evaluators.environments.base import (
    About,
    Defect,
    Graded,
    Item,
    JudgeOptions,
    JudgeQuestion,
    Posed,
    TurnOptions,
    initial,
)
from kept.evaluators.environments.chat_student import boxed, quoted
from kept.evaluators.environments.datasets import (
    IDS,
    Fields,
    Row,
    as_items,
    item,
    rows_in,
    rows_of,
    values,
)
from kept.evaluators.environments.pictures import ImageDetail, find_picture, load_picture

SYSTEM = """\
You answer questions about a picture. Look at all of it before you decide, and give the final answer
alone in \\boxed{...}."""

ASK_CHOICE = "Answer with the letter of the one right choice in \\boxed{...}."
ASK_BLANK = "Answer with a short phrase in \\boxed{...}."

AGAIN = """\
Look at the picture once more. If the answer should change, change it; in any case give the final
answer in \\boxed{...}."""

FILE, FOLDER = "meta_data.jsonl", "images"

NAMES = {
    "question": ("question", "query"),
    "image": ("image", "image_path", "image_file", "img"),
    "options": ("options", "choices", "choiceOptions"),
}
"""The names that a field may have."""

MOST = len(ascii_uppercase)
"""Choices of a question."""

_END = "<|end_of_box|>"
_TOKENS = re.compile(r"<\|begin_of_box\|>(.*?)<\|end_of_box\|>", re.DOTALL)
_SIGN = re.compile(r"\s*([,;:=()\[\]{}])\s*")


@dataclass(frozen=True)
class BabyVision(TurnOptions, JudgeOptions):
    """BabyVision environment: one case is one question about one picture."""

    image_detail: ImageDetail = "auto"
    data_root: Path = Path()
    """Base folder of picture paths; pictures beside the file are found as well."""
    first_choice: Literal[0, 1] = 0
    """The number by which `choiceAns` means the first choice."""

    name = "babyvision"
    again = AGAIN
    data = (
        "BabyVision (huggingface.co/datasets/UnipatAI/BabyVision): a folder as "
        "`env.data_path` with meta_data.jsonl (taskId, "
        "type, subtype, question, image, ansType, options, choiceAns, blankAns) and the pictures "
        "in images/; or with `split_mode: split_dir` such rows in train/, val/ and test/ below "
        "`env.split_dir`, their pictures from `env.data_root`"
    )

    def skill(self) -> Mapping[str, str]:
        """Return the initial skill, a few lines."""
        return initial("babyvision")

    def read(self, path: Path) -> Iterable[Item]:
        """Questions of a file, or of a folder with `meta_data.jsonl`."""
        fields = Fields()
        return as_items(fields, self._items(path, fields))

    def _items(self, path: Path, fields: Fields) -> Iterator[Item]:
        for row in rows_of(path / FILE) if (path / FILE).is_file() else rows_in(path):
            question = fields.text(row, NAMES["question"])
            picture = self._picture(fields, row)
            given = _named(row, "options")
            choices = choices_in(given)
            if isinstance(given, str) and given.strip():
                fields.wrong(row, "the options are a text, where a list or a mapping was expected")
            answer = self._answer(fields, row, choices)
            if question is None or picture is None or answer is None:
                continue
            data: dict[str, object] = {"question": question, "image": picture, **answer}
            data["options"] = [choice.text for choice in choices]
            data |= {name: str(row.data.get(name) or "") for name in ("type", "subtype")}
            yield item(row, data, names=("taskId", *IDS, "row"))

    def _picture(self, fields: Fields, row: Row) -> Mapping[str, str] | None:
        beside = (row.path.parent / FOLDER, self.data_root / FOLDER)
        return find_picture(fields, row, _named(row, "image"), self.data_root, beside)

    def _answer(
        self, fields: Fields, row: Row, choices: Sequence[Choice]
    ) -> Mapping[str, object] | None:
        """The label of the right choice, or the right texts; None, and a problem, for neither."""
        kind = row.data.get("ansType") or ("choice" if choices else "blank")
        if kind == "blank":
            golds = fields.texts(row, ("blankAns",))
            return {"ansType": kind, "blankAns": golds} if golds else None
        if len(choices) > MOST:
            fields.wrong(row, f"there are {len(choices)} choices, over {MOST}")
            return None
        if kind != "choice":
            fields.wrong(row, f"`ansType` is `{kind}`, where `choice` or `blank` was expected")
            return None
        given = row.data.get("choiceAns")
        if given is None:
            fields.wrong(row, "there is no `choiceAns`")
            return None
        label = _label(given, choices, self.first_choice)
        if not label:
            fields.wrong(row, f"the `choiceAns` `{given}` is none of the {len(choices)} choices")
            return None
        return {"ansType": kind, "choiceAns": label}

    def defects(self, items: Sequence[Item]) -> Iterable[Defect]:
        """Choices of which two have one text, so that two labels are as good."""
        for case, _ in items:
            choices = labelled(values(case)["options"])
            right = values(case).get("choiceAns", "")
            if sum(alike(one.label, right, choices) for one in choices) > 1:
                yield Defect(case.id, TWICE)

    def pose(self, case: Case) -> Posed:
        """Prompt with the question, its choices and the picture."""
        data = values(case)
        picture = load_picture(data["image"], self.data_root, self.image_detail)
        ask = ASK_CHOICE if data["ansType"] == "choice" else ASK_BLANK
        return Posed.of(
            [f"## Question\n{_asked(data['question'], data['options'])}\n\n{ask}\n\n", picture],
            SYSTEM,
        )

    def grade(self, case: Case, rollout: Rollout) -> Graded | JudgeQuestion | Failure:
        """Grade by the label, by an equal text, or by a judge."""
        data = values(case)
        answer = boxed_answer(rollout.output)
        if isinstance(answer, Failure):
            return answer
        if data["ansType"] == "choice":
            choices = labelled(data["options"])
            label = chosen(answer, choices)
            if not label:
                return Failure("parse", "candidate", f"{quoted(answer)} is none of the choices")
            right = float(alike(label, data["choiceAns"], choices))
            return Graded(right, right, "" if right else f"{label} is not the right choice")
        golds: list[str] = data["blankAns"]
        if same_blank(answer, golds):
            return Graded(1.0, 1.0, told="the same text")
        return judged(data["question"], golds, answer)

    def about(self, case: Case) -> About:
        """The question, its kind, and what was expected."""
        data = values(case)
        kind = " / ".join(one for one in (data["type"], data["subtype"]) if one)
        if data["ansType"] == "blank":
            golds = tuple(data["blankAns"])
            return About(
                _asked(data["question"], data["options"]),
                kind or self.name,
                " | ".join(golds),
                golds=golds,
            )
        label: str = data["choiceAns"]
        text = dict(labelled(data["options"])).get(label, "")
        told = f"choice {label}" + (f": {text}" if text else "")
        return About(
            _asked(data["question"], data["options"]),
            kind or self.name,
            told,
            golds=(text or told,),
        )


def boxed_answer(text: str) -> str | Failure:
    """The text in the last box; a reply without one cannot be read."""
    inner = boxed(text)
    if inner is None:
        # only up to the last end: unclosed beginnings would make the search quadratic
        ends = text.rfind(_END) + len(_END) if _END in text else 0
        marked = _TOKENS.findall(text, 0, ends)
        inner = marked[-1].strip() if marked else None
    if inner is None:
        return Failure("parse", "candidate", "there is no \\boxed{...} in the reply")
    return inner or Failure("empty", "candidate", "the answer is empty")


def same_blank(answer: str, golds: Iterable[str]) -> bool:
    """True for one of the expected answers: case, blanks and a last full stop apart."""
    return _blank(answer) in {_blank(gold) for gold in golds}


def _blank(text: str) -> str:
    # blanks round signs mean nothing, as in `(4, 7)`; those between words and numbers do
    return _SIGN.sub(r"\1", " ".join(bare(text).split()).casefold()).rstrip(".").strip()


def _asked(question: str, options: Sequence[str]) -> str:
    """The question, with the choices that are no part of the picture."""
    choices = "\n".join(f"{label}. {text}" for label, text in labelled(options))
    return question + (f"\n\n## Choices\n{choices}" if choices else "")


def _label(given: object, choices: Sequence[Choice], first: int) -> str:
    """The letter of the right choice: by its label, its text or its number; else empty."""
    if isinstance(given, dict):
        row = cast("dict[str, object]", given)
        return _label(label_in(row.get("label")) or text_in(row), choices, first)
    if isinstance(given, bool) or not isinstance(given, int | str):
        return ""
    word = label_in(given if isinstance(given, str) else str(given))
    if not choices and len(word) == 1 and word in ascii_uppercase:
        return word
    labels, texts = ([choice[n] for choice in choices] for n in (0, 1))
    for known, wanted in ((labels, word), (texts, given)):
        if wanted in known:
            return ascii_uppercase[known.index(wanted)]
    number = int(word) - first if word.isdecimal() else -1
    return ascii_uppercase[number] if 0 <= number < (len(choices) or MOST) else ""


def _named(row: Row, field: str) -> object:
    """The field of a row by any of its names."""
    return next((row.data[one] for one in NAMES[field] if row.data.get(one) is not None), None)
