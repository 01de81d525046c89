"""OfficeQA: questions about treasury bulletins, answered with tools that read the documents.

Rows are those of the published CSV files (`uid`, `question`, `answer`, `source_docs`,
`source_files`, `difficulty`). A student sees only the documents that its row names.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any, Literal, cast

from kept.core.case import Case
from kept.core.ports import Scope, Tool
from kept.core.rollout import Failure, Job, Rollout
from kept.errors import SetupError
from kept.evaluators.environments.contract import (
    Environment,
    Episode,
    Graded,
    Item,
    OneReply,
    Posed,
)
from kept.evaluators.environments.fields import Fields, as_items, item, values
from kept.evaluators.environments.officeqa_scoring import normal, official, token_f1
from kept.evaluators.environments.opened import About
from kept.evaluators.environments.reading import Row, rows_in
from kept.evaluators.environments.replying import answer_in, quoted
from kept.evaluators.environments.skills import initial
from kept.evaluators.tools.document_tools import Documents, document_tools

SYSTEM = """\
You answer questions from documents. Look the figures up in the documents that you are given, work
the answer out, and give it alone between <answer> and </answer>."""

TRANSFORMED = "transformed"
"""The folder of a download in which its texts lie."""

MOST_SHOWN = 20
"""Documents that the prompt lists."""

_BETWEEN = re.compile(r",\s*(?=https?://)|(?<=\.txt),|,\s+")
"""What stands between the items of one line; a comma inside an address is a part of it."""


@dataclass(frozen=True)
class OfficeQa(Environment):
    """One question a case, with the documents that it needs."""

    data_dirs: tuple[Path, ...] = (Path("data/officeqa_docs_official"),)
    """Folders with documents; of each its folder `transformed` where there is one."""
    max_tool_turns: int = 24
    """Replies of a student in all, its answer among them."""
    measure: Literal["exact", "official"] = "exact"
    """`official` compares numbers and units as the benchmark does."""
    tolerance: float = 0.0
    """Of `official`: how far a number may be off, as a share of the expected one."""
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
        """As the config says."""
        return self.max_tool_turns

    def exec_seconds(self) -> float:
        """As the config says."""
        return self.exec_timeout

    def skill(self) -> Mapping[str, str]:
        """A few lines to begin with."""
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
            data: dict[str, Any] = {"question": question, "source_files": named}
            data["answer"] = golds[0] if len(golds) == 1 else f"[{', '.join(golds)}]"
            data["source_docs"] = _listed(row.data.get("source_docs"))
            data["category"] = _kind(row)
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
        """One answer, once the documents are known to be those of the case."""
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
        """Equality or the published rule; shared words are told in any case."""
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
        """Those that a row names; all where it names none."""
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
    """All documents, with their hashes where these were asked for."""

    documents: Documents
    _hashes: dict[Path, str] = field(default_factory=dict[Path, str])

    def named(self, fields: Fields, row: Row, names: Sequence[str]) -> list[dict[str, str]] | None:
        """The documents that a row names; None, and a problem, where one is not there."""
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


def _kind(row: Row) -> str:
    return str(row.data.get("category") or row.data.get("difficulty") or "officeqa")
