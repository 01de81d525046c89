"""OfficeQA: questions about treasury bulletins, answered with document tools.

Rows are those of the published CSV files (`uid`, `question`, `answer`, `source_docs`,
`source_files`, `difficulty`). A student sees only the documents that its row names.

Scores are equality, shared words, and the published rule. By that rule an answer is one line with
as many numbers as expected. Each must be within a relative tolerance and of the expected unit.
Lists keep their order, and texts must be equal.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from pathlib import Path, PurePosixPath
from string import punctuation
from typing import Literal, NamedTuple, cast

from kept.core.case import Case
from kept.core.ports import Scope, Tool
from kept.core.rollout import Failure, Job, Rollout
from kept.errors import SetupError
from kept.evaluators.environments.base import (
    About,
    Environment,
    Episode,
    Graded,
    Item,
    OneReply,
    Posed,
    initial,
)
from kept.evaluators.environments.chat_student import answer_in, quoted
from kept.evaluators.environments.datasets import Fields, Row, as_items, item, rows_in, values
from kept.evaluators.tools.document_tools import Documents, document_tools

KEPT_SIGNS = ".-%"
"""Punctuation that has a meaning in a number."""

LONGEST = 250
"""Maximum length of an answer in characters."""

NEAR = 20
"""Characters before and after a number in which its unit is searched."""

FIRST_YEAR, LAST_YEAR = 1900, 2100
"""Whole numbers in this range are taken for years that an answer only mentions."""

SHORTEST_TEXT = 2
"""Minimum number of letters beside the numbers from which on the text is compared."""

_DROPPED = str.maketrans("", "", "".join(set(punctuation) - set(KEPT_SIGNS)))
_NO_WORDS = re.compile(r"\b(?:millions?|billions?|dollars?|nominal)\b")

_CURRENCY = "$£€¥₹¢₩₽"
_VALUE = r"\d{1,3}(?:,\d{3})*(?:\.\d+)?|\d+(?:\.\d+)?"
_BRACKETED = re.compile(rf"\(\s*([{_CURRENCY}])?\s*({_VALUE})\s*\)")
_GROUPED = re.compile(r"(?<![\d.])\d{1,3}(?:,\d{3})+(?:\.\d+)?(?!\d)")
_NUMBER = re.compile(r"-?\d+\.?\d*%?")
_ITEM = re.compile(r"-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?%?")
_UNITS = {
    "trillion": re.compile(r"\btrillions?\b"),
    "billion": re.compile(r"\b(?:billions?|b)\b"),
    "million": re.compile(r"\b(?:millions?|m)\b"),
    "thousand": re.compile(r"\b(?:thousands?|k)\b"),
}
_BESIDE = re.compile(
    r"\b(?:trillions?|billions?|millions?|thousands?|hundreds?|percent|percentage)\b"
)
_LIST = re.compile(r"\[([^\[\]]+)\]")
_MARKUP = re.compile(r"<[^>]*>")


class Number(NamedTuple):
    """One number of a text."""

    value: float
    unit: str = ""
    """Unit near it, as `million`; empty if there is none."""

    @property
    def is_year(self) -> bool:
        """True for a whole number that may be a year."""
        return _is_year(self.value)


def normal(text: str) -> str:
    """Lower case, without commas, most punctuation, and words that only name a unit."""
    plain = _plain(text).lower().translate(_DROPPED)
    return " ".join(_NO_WORDS.sub(" ", plain).split())


def token_f1(answer: str, gold: str) -> float:
    """F1 of the words of two texts."""
    said, wanted = normal(answer).split(), normal(gold).split()
    if not said or not wanted:
        return float(said == wanted)
    common = sum((Counter(said) & Counter(wanted)).values())
    return 2 * common / (len(said) + len(wanted))


def official(answer: str, gold: str, tolerance: float = 0.0) -> bool:
    """True if an answer is right by the published rule."""
    # one line that is not too long, and that does not give up
    lines = [line for line in answer.splitlines() if line.strip()]
    given_up = "unable to determine" in answer.lower()
    if len(lines) != 1 or len(answer.strip()) > LONGEST or given_up:
        return False
    wanted, said = numbers_in(gold), numbers_in(answer)
    if not wanted:
        return not said and _bare(answer) == _bare(gold)
    if _MARKUP.search(answer):
        return False
    # years count only where a year, or a text with one, is expected
    if not any(number.is_year for number in wanted) and not (len(wanted) == 1 and _beside(gold)):
        said = [number for number in said if not number.is_year]
    near = _nearness(tolerance)
    if _is_list(gold, wanted):
        if _splits(answer, [number.value for number in wanted], near):
            return True
        pairs = zip(wanted, said, strict=False)
        return len(said) == len(wanted) and all(_same(one, other, near) for one, other in pairs)
    found = all(any(_same(one, other, near) for other in said) for one in wanted)
    return len(said) == len(wanted) and found and _texts_agree(answer, gold)


def numbers_in(text: str) -> list[Number]:
    """Numbers of a text in order; percent signs are ignored, brackets are a minus."""
    plain = _GROUPED.sub(lambda match: match[0].replace(",", ""), _signed(_plain(text)))
    found: list[Number] = []
    for match in _NUMBER.finditer(plain):
        around = plain[max(0, match.start() - NEAR) : match.end() + NEAR].lower()
        unit = next((name for name, words in _UNITS.items() if words.search(around)), "")
        found.append(Number(float(match[0].rstrip("%")), unit))
    return found


Nearness = Callable[[float, float], bool]


def _nearness(tolerance: float) -> Nearness:
    def near(wanted: float, said: float) -> bool:
        if wanted == 0:
            return said == 0
        return abs(wanted - said) / abs(wanted) <= tolerance

    return near


def _same(wanted: Number, said: Number, near: Nearness) -> bool:
    units = not wanted.unit or not said.unit or wanted.unit == said.unit
    return units and near(wanted.value, said.value)


def _is_list(gold: str, wanted: Sequence[Number]) -> bool:
    """True if the expected answer is a bracketed list of numbers only."""
    body = _list_body(gold)
    values = [number.value for number in wanted]
    return body is not None and len(values) > 1 and _splits(body, values, lambda a, b: a == b)


def _splits(text: str, values: Sequence[float], near: Nearness) -> bool:
    """True if a text splits at some of its commas into the values, in order.

    A comma may stand between two values or inside one, as in `8,152,260` for 8 and 152260.
    """
    pieces = (_list_body(text) or _plain(text)).split(",")

    @cache
    def fits(piece: int, value: int) -> bool:
        if value == len(values):
            return piece == len(pieces)
        # try every number of pieces for this value; `cache` keeps it polynomial
        for end in range(piece + 1, len(pieces) + 1):
            item = _item(",".join(pieces[piece:end]))
            if item is not None and near(values[value], item) and fits(end, value + 1):
                return True
        return False

    return len(values) > 1 and fits(0, 0)


def _item(text: str) -> float | None:
    """Number of a list item; None if it is something else."""
    item = text.strip()
    if re.search(r"\s,|,\s", item):
        return None
    item = _signed(item)
    return float(item.rstrip("%").replace(",", "")) if _ITEM.fullmatch(item) else None


def _list_body(text: str) -> str | None:
    """Inside of the only brackets of a text; None if there are numbers outside."""
    plain = _plain(text)
    found = list(_LIST.finditer(plain))
    if len(found) != 1:
        return None
    outside = plain[: found[0].start()] + plain[found[0].end() :]
    return None if re.search(r"\d", outside) else found[0][1]


def _texts_agree(answer: str, gold: str) -> bool:
    """Compare the words beside the numbers, as the month of a date; one may contain the other."""
    wanted, said = _beside(gold), _beside(answer)
    if not wanted:
        return True
    return bool(said) and (wanted in said or said in wanted)


def _beside(text: str) -> str:
    """Words of a text that are neither numbers nor units; empty if there are none."""
    words = _NUMBER.sub("", _plain(text).lower()).replace(",", "")
    words = " ".join(re.sub(r"[^\w\s]", " ", _BESIDE.sub("", words)).split())
    return words if len(words) >= SHORTEST_TEXT else ""


def _bare(text: str) -> str:
    """Text in lower case, without quotes around it and without parts in brackets."""
    plain = text.strip().lower().strip('"').strip("'")
    return " ".join(re.sub(r"\([^)]*\)", "", plain).split())


def _signed(text: str) -> str:
    """A text without signs of currency, and with a minus for a number in brackets."""

    def signed(match: re.Match[str]) -> str:
        year = not match[1] and _is_year(float(match[2].replace(",", "")))
        return match[0] if year else f"-{match[2]}"

    return re.sub(f"[{_CURRENCY}]", "", _BRACKETED.sub(signed, text))


def _plain(text: str) -> str:
    """A text with plain signs of minus, and single blanks."""
    return " ".join(text.replace("\N{MINUS SIGN}", "-").split())


def _is_year(value: float) -> bool:
    return FIRST_YEAR <= value <= LAST_YEAR and value == int(value)


SYSTEM = """\
You answer questions from documents. Look the figures up in the documents that you are given, work
the answer out, and give it alone between <answer> and </answer>."""

TRANSFORMED = "transformed"
"""Folder of a download that holds its texts."""

MOST_SHOWN = 20
"""Documents that the prompt lists."""

_BETWEEN = re.compile(r",\s*(?=https?://)|(?<=\.txt),|,\s+")
"""Separator of the items of one line; a comma inside an address is part of the address."""


@dataclass(frozen=True)
class OfficeQa(Environment):
    """OfficeQA environment: one case is one question with its documents."""

    data_dirs: tuple[Path, ...] = (Path("data/officeqa_docs_official"),)
    """Folders with documents; the subfolder `transformed` is used if there is one."""
    max_tool_turns: int = 24
    """Maximum number of replies of a student, the answer included."""
    measure: Literal["exact", "official"] = "exact"
    """`official` compares numbers and units as the benchmark does."""
    tolerance: float = 0.0
    """Relative tolerance of a number, for `official`."""
    exec_timeout: float = 600.0
    """Seconds for one execution of an agent CLI."""

    name = "officeqa"
    data = (
        "OfficeQA (huggingface.co/datasets/databricks/officeqa): below "
        "`env.split_dir` the folders train/, val/ and test/, "
        "each with a CSV file (uid, question, answer, source_docs, source_files, difficulty), and "
        "the documents as text files, named as source_files says, in the folders `env.data_dirs`"
    )

    def __post_init__(self) -> None:
        if self.max_tool_turns < 1:
            raise ValueError("`max_tool_turns` is less than 1")
        if not 0 <= self.tolerance <= 1:
            raise ValueError("`tolerance` is not between 0 and 1")
        if self.exec_timeout <= 0:
            raise ValueError("`exec_timeout` is not above 0")
        if not self.data_dirs:
            raise ValueError("`data_dirs` names no folder")

    def replies(self) -> int:
        """Return `max_tool_turns`."""
        return self.max_tool_turns

    def exec_seconds(self) -> float:
        """Return `exec_timeout`."""
        return self.exec_timeout

    def skill(self) -> Mapping[str, str]:
        """Return the initial skill, a few lines."""
        return initial("officeqa")

    def read(self, path: Path) -> Iterable[Item]:
        """Questions of CSV or JSON, each with its documents."""
        fields = Fields()
        return as_items(fields, self._items(path, fields))

    def _items(self, path: Path, fields: Fields) -> Iterator[Item]:
        rows = list(rows_in(path))
        missing = [str(folder) for folder in self.data_dirs if not folder.is_dir()]
        if missing:
            raise SetupError(f"there is no folder with documents {', '.join(missing)}")
        shelf = _Shelf(Documents(self._roots()))
        for row in rows:
            question = fields.text(row, ("question",))
            golds = fields.texts(row, ("ground_truth", "answer"))
            named = _listed(row.data.get("source_files"))
            documents = shelf.named(fields, row, named)
            if question is None or golds is None or documents is None:
                continue
            data: dict[str, object] = {"question": question, "source_files": named}
            data["answer"] = golds[0] if len(golds) == 1 else f"[{', '.join(golds)}]"
            data["source_docs"] = _listed(row.data.get("source_docs"))
            kind = row.data.get("category") or row.data.get("difficulty") or "officeqa"
            data["category"] = str(kind)
            yield item(row, {**data, "documents": documents}, names=("uid", "id"))

    def pose(self, case: Case) -> Posed:
        """The question, the documents, and where they were published."""
        data = values(case)
        paths = [document["path"] for document in data["documents"]]
        parts = [("Question", data["question"])]
        listed = "\n".join(f"- {path}" for path in paths[:MOST_SHOWN])
        parts.append(("Candidate Files", listed or "- all documents; list them"))
        if data["source_docs"]:
            parts.append(("Source Hints", "\n".join(f"- {url}" for url in data["source_docs"])))
        text = "\n\n".join(f"## {title}\n{text}" for title, text in parts)
        return Posed(text, SYSTEM, files=_Files(self._documents(case)))

    def begin(self, case: Case, job: Job, scope: Scope) -> Episode:
        """Check that the documents are unchanged, and return an episode of one reply."""
        there = self._documents(case)
        for document in values(case)["documents"]:
            path = there.find(document["path"])
            if path is None or _hashed(path) != document["sha256"]:
                what = "is gone" if path is None else "has changed"
                raise SetupError(
                    f"the document {document['path']} {what} since its case was read",
                    hint="put the document back, or start another run",
                )
        return OneReply(self.pose(case))

    def tools(self, case: Case) -> Sequence[Tool]:
        """Glob, read and grep for the documents of the case."""
        return document_tools(self._documents(case))

    def grade(self, case: Case, rollout: Rollout) -> Graded | Failure:
        """Grade by equality or by the published rule; the F1 of words is always reported."""
        if "<answer>" not in rollout.output.lower():
            return Failure("parse", "candidate", "there is no <answer> in the reply")
        answer, gold = answer_in(rollout.output), values(case)["answer"]
        if isinstance(answer, Failure):
            return answer
        exact, shared = float(normal(answer) == normal(gold)), token_f1(answer, gold)
        hard = exact
        if self.measure == "official":
            hard = float(official(answer, gold, self.tolerance))
        soft = shared if self.measure == "exact" else hard
        why = "" if hard else f"{quoted(answer)} is not the answer that was expected"
        return Graded(hard, soft, why, f"F1 {shared:.3g}", {"em": exact, "f1": shared})

    def about(self, case: Case) -> About:
        """The question with its documents, how hard it is, and what was expected."""
        data = values(case)
        gold: str = data["answer"]
        return About(self.pose(case).prompt, data["category"], gold, golds=(gold,))

    def _documents(self, case: Case) -> Documents:
        """Documents that a row names; all if it names none."""
        named = values(case)["source_files"]
        return Documents(self._roots(), frozenset(map(_name, named)) if named else None)

    def _roots(self) -> tuple[Path, ...]:
        inner = [folder / TRANSFORMED for folder in self.data_dirs]
        pairs = zip(self.data_dirs, inner, strict=True)
        return tuple(texts if texts.is_dir() else folder for folder, texts in pairs)


@dataclass(frozen=True, slots=True)
class _Files(Mapping[str, bytes]):
    """Documents as files for an agent CLI, read when they are asked for."""

    documents: Documents

    def __getitem__(self, path: str) -> bytes:
        try:
            return self.documents.files()[path].read_bytes()
        except OSError as error:
            raise SetupError(f"cannot read {error.filename}: {error.strerror}") from error

    def __iter__(self) -> Iterator[str]:
        return iter(self.documents.files())

    def __len__(self) -> int:
        return len(self.documents.files())


@dataclass(slots=True)
class _Shelf:
    """All documents, with a cache of their hashes."""

    documents: Documents
    _hashes: dict[Path, str] = field(default_factory=dict[Path, str])

    def named(self, fields: Fields, row: Row, names: Sequence[str]) -> list[dict[str, str]] | None:
        """Documents that a row names; None, and a problem, if one is missing."""
        found: list[dict[str, str]] = []
        lacking: list[str] = []
        for name in dict.fromkeys(map(_name, names)):
            places = [p for p in self.documents.files() if PurePosixPath(p).name == name]
            lacking += [] if places else [name]
            found += [{"path": path, "sha256": self._hash(path)} for path in sorted(places)]
        if lacking:
            folders = ", ".join(map(str, self.documents.roots))
            words = ", ".join(f"`{name}`" for name in lacking)
            fields.wrong(row, f"there is no document {words} in {folders}")
            return None
        return found

    def _hash(self, path: str) -> str:
        place = self.documents.files()[path]
        if place not in self._hashes:
            self._hashes[place] = _hashed(place)
        return self._hashes[place]


def _hashed(path: Path) -> str:
    try:
        return sha256(path.read_bytes()).hexdigest()[:16]
    except OSError as error:
        raise SetupError(f"cannot read {path}: {error.strerror}") from error


def _name(given: str) -> str:
    return PurePosixPath(given).name


def _listed(value: object) -> list[str]:
    """A list, or a text with one: as JSON, by lines, or by commas."""
    if isinstance(value, str):
        text = value.strip()
        try:
            read: object = json.loads(text)
        except (ValueError, RecursionError):
            read = None
        if not isinstance(read, list):
            read = text.splitlines() if "\n" in text else _BETWEEN.split(text)
        value = cast("list[object]", read)
    given = cast("list[object]", value) if isinstance(value, list) else []
    return [str(one).strip() for one in given if str(one).strip()]
