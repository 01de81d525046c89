"""MathVerse: problems with a diagram, each in several versions that say more or less in words.

Rows are those of `testmini.json`. A config looks at one version; choices are graded by their label,
all else by equality of the formulas, or by a judge.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import ascii_uppercase
from typing import Final, NotRequired, TypedDict, cast

from kept.core.case import Case
from kept.core.llm import Image
from kept.core.rollout import Failure, Rollout
from kept.errors import Problem, SetupError
from kept.evaluators.environments.answers import (
    TWICE,
    all_chosen,
    choices_of,
    chosen,
    judged,
    same_formula,
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
from kept.evaluators.environments.chat_student import answer_or_last_line, boxed, quoted
from kept.evaluators.environments.datasets import (
    Fields,
    Row,
    as_items,
    id_of,
    rows_in,
    rows_of,
    values,
)
from kept.evaluators.environments.pictures import ImageDetail, Picture, find_picture, load_picture

SYSTEM = """\
You solve mathematical problems, most of them with a diagram. Take what is given from the text and
from the diagram, reason step by step, and give the final answer alone between <answer> and
</answer>."""

ASK_CHOICE = (
    "Give the letter of the right choice, or all letters where several are asked for, inside "
    "<answer>...</answer>."
)
ASK_FREE = "Give the final answer inside <answer>...</answer>."
IN_PICTURE = "The whole problem stands in the picture: read it there."

AGAIN = """\
Check the solution against the diagram once more. If the answer should change, change it; in any
case give the final answer between <answer> and </answer>."""

TEXT_ONLY, TEXT_DOMINANT = "Text Only", "Text Dominant"
"""Version without a picture, and the version that also says everything in words."""

WHOLE = "testmini.json"
"""File below `data_root` with all versions."""

TWIN: Final = "text_dominant_question"


class Version(TypedDict):
    """Fields of a case."""

    question: str
    answer: list[str]
    problem_version: str
    question_type: str
    metadata: dict[str, str]
    image: NotRequired[Picture]
    question_for_eval: NotRequired[str]
    text_dominant_question: NotRequired[str]


@dataclass(frozen=True)
class MathVerse(TurnOptions, JudgeOptions):
    """MathVerse environment: one case is one version of one problem."""

    problem_version: str = "Text Lite"
    """Version to use; empty for all."""
    use_text_dominant_reference: bool = False
    """Show analysts the problem in words, from `testmini.json` below `data_root`."""
    image_detail: ImageDetail = "auto"
    data_root: Path = Path()
    """Base folder of picture paths; pictures beside the file are found as well."""

    name = "mathverse"
    again = AGAIN
    data = (
        "MathVerse (github.com/ZrrSkywalker/MathVerse): "
        "testmini.json and the pictures below `env.data_root`, and "
        "below `env.split_dir` the folders train/, val/ and test/, each with a JSON file of such "
        "rows (problem_index, problem_version, question, image, answer, question_type); or "
        "testmini.json itself as `env.data_path` with `split_mode: ratio`"
    )

    def skill(self) -> Mapping[str, str]:
        """Return the initial skill, a few lines."""
        return initial("mathverse")

    def read(self, path: Path) -> Iterable[Item]:
        """Problems of the version that the config wants."""
        fields = Fields()
        return as_items(fields, self._items(path, fields))

    def _items(self, path: Path, fields: Fields) -> Iterator[Item]:
        others: set[str] = set()
        found = 0
        twins = self._twins()
        for row in rows_in(path):
            version = str(row.data.get("problem_version") or "")
            if self.problem_version and version not in ("", self.problem_version):
                others.add(version)
                continue
            found += 1
            data = self._data(fields, row)
            if data is None:
                continue
            if self.use_text_dominant_reference:
                twin = row.data.get(TWIN) or twins.get(str(row.data.get("problem_index")))
                if not twin:
                    fields.wrong(row, f"{WHOLE} has no `{TEXT_DOMINANT}` version of it")
                data[TWIN] = twin or ""
            yield Item(Case(self._id(row), data), row.where)
        if others and not found:
            there = ", ".join(f"`{one}`" for one in sorted(others))
            message = f"no row is of `problem_version: {self.problem_version}`; there is {there}"
            fields.problems.append(Problem(str(path), "", message))

    def _data(self, fields: Fields, row: Row) -> Version | None:
        """Fields of a case; None, and problems, if the row is invalid."""
        version = str(row.data.get("problem_version") or "")
        question = str(row.data.get("question") or "").strip()
        golds = fields.texts(row, ("answer",))
        named, picture = row.data.get("image"), None
        if named or version != TEXT_ONLY:
            beside = (self.data_root / "images",)
            picture = find_picture(fields, row, named, self.data_root, beside)
            if picture is None:
                return None
        elif not question:
            fields.wrong(row, "it has neither question nor picture")
            return None
        if golds is None:
            return None
        kind = str(row.data.get("question_type") or "")
        about = row.data.get("metadata")
        held = cast("dict[str, object]", about) if isinstance(about, dict) else {}
        subject = {name: str(held[name]) for name in ("subject", "subfield") if held.get(name)}
        data: Version = {
            "question": question,
            "answer": golds,
            "problem_version": version,
            "question_type": kind,
            "metadata": subject,
        }
        if picture:
            data["image"] = picture
        if asked := row.data.get("question_for_eval"):
            data["question_for_eval"] = str(asked)
        if kind == "multi-choice" and not _right(data):
            choices = len(choices_of(_told(data)))
            where = f"none of the {choices} choices" if choices else "no letter, without choices"
            fields.wrong(row, f"the `answer` {quoted(', '.join(golds))} is {where}")
            return None
        return data

    def _id(self, row: Row) -> str:
        index = row.data.get("problem_index")
        if index is None:
            return id_of(row)
        return str(index) if self.problem_version else f"{index}:{row.data.get('problem_version')}"

    def _twins(self) -> Mapping[str, str]:
        """Problems in words by index; empty if analysts do not get them."""
        path = self.data_root / WHOLE
        if not self.use_text_dominant_reference:
            return {}
        if not path.is_file():
            hint = "put it there, or set `use_text_dominant_reference: false`"
            raise SetupError(f"there is no {path}", hint=hint)
        return {
            str(row.data.get("problem_index")): str(row.data.get("question") or "").strip()
            for row in rows_of(path)
            if row.data.get("problem_version") == TEXT_DOMINANT
        }

    def twin(self, case: Case) -> str:
        """Problem that a case is a version of, if a run has several versions."""
        problem, colon, version = case.id.rpartition(":")
        several = not self.problem_version and colon
        return problem if several and version == values(case)["problem_version"] else ""

    def defects(self, items: Sequence[Item]) -> Iterable[Defect]:
        """Choices of which two have one text."""
        for case, _ in items:
            right = _right(values(case))
            if len(right) > 1 and len(next(iter(right))) == 1:
                yield Defect(case.id, TWICE)

    def pose(self, case: Case) -> Posed:
        """Prompt with the problem and the picture."""
        data = values(case)
        ask = ASK_CHOICE if _right(data) else ASK_FREE
        parts: list[str | Image] = [f"{data['question'] or IN_PICTURE}\n\n{ask}"]
        if "image" in data:
            parts.append(load_picture(data["image"], self.data_root, self.image_detail))
        return Posed.of(parts, SYSTEM)

    def grade(self, case: Case, rollout: Rollout) -> Graded | JudgeQuestion | Failure:
        """Grade by the label, by an equal formula, or by a judge."""
        data = values(case)
        answer = final_answer(rollout.output)
        if isinstance(answer, Failure):
            return answer
        if right := _right(data):
            said = _labels(answer, data, several=max(map(len, right)) > 1)
            if not said:
                return Failure("parse", "candidate", f"{quoted(answer)} is none of the choices")
            hard = float(said in right)
            named = ", ".join(sorted(said))
            why = f"{named} {'is' if len(said) == 1 else 'are'} not the right choice"
            return Graded(hard, hard, "" if hard else why)
        golds: list[str] = data["answer"]
        if any(same_formula(answer, gold) for gold in golds):
            return Graded(1.0, 1.0, told="the same formula")
        return judged(_told(data) or IN_PICTURE, golds, answer)

    def about(self, case: Case) -> About:
        """The problem, its subject, and what was expected."""
        data = values(case)
        task = data["question"] or IN_PICTURE
        if data.get(TWIN):
            task += f"\n\nThe problem in words: {data[TWIN]}"
        kind = " / ".join(data["metadata"].values()) or self.name
        golds: list[str] = data["answer"]
        if right := _right(data):
            texts = {choice.label: choice.text for choice in choices_of(_told(data))}
            labels = sorted(next(iter(right)))
            shown = ", ".join(labels)
            known = tuple(texts[label] for label in labels if texts.get(label))
            told = f"choice {shown}" + (f": {' | '.join(known)}" if known else "")
            return About(task, kind, told, golds=known or (told,))
        return About(task, kind, " | ".join(golds), golds=tuple(golds))


def final_answer(text: str) -> str | Failure:
    """The text in the last answer tags, else in the last box, else the last line."""
    said = answer_or_last_line(text) if "<answer>" in text.lower() else boxed(text)
    said = said or answer_or_last_line(text)
    if isinstance(said, Failure):
        return said
    inner = boxed(said)
    if inner == "":
        return Failure("empty", "candidate", "the answer is empty")
    return inner or said


def _right(data: Version) -> list[frozenset[str]]:
    """All right sets of labels; empty for a problem without choices.

    A published answer is a label, a label in brackets, several labels, or the text of a choice.
    """
    choices = choices_of(_told(data))
    if not choices and data["question_type"] != "multi-choice":
        return []
    labels = [choice.label for choice in choices]
    answer = "\n".join(data["answer"])
    found = all_chosen(answer, labels or ascii_uppercase)
    if len(found) > 1:
        return [found]
    texts = [choice.text for choice in choices if choice.label in found] or [answer]
    same = [one.label for one in choices if any(same_formula(one.text, text) for text in texts)]
    return [frozenset(label) for label in same] or ([found] if found else [])


def _labels(answer: str, data: Version, *, several: bool) -> frozenset[str]:
    """The labels of the choices that an answer means."""
    choices = choices_of(_told(data))
    label = chosen(answer, choices)
    if several and not label:
        return all_chosen(answer, [choice.label for choice in choices])
    if not label:
        label = next((one.label for one in choices if same_formula(one.text, answer)), "")
    return frozenset(label)


def _told(data: Version) -> str:
    """The question as text, also of the version that shows it in the picture."""
    return data["question"] or data.get("question_for_eval", "")
