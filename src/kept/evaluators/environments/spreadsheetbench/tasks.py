"""Tasks of the benchmark: rows of dataset.json, and the workbooks in a task's folder.

A case names a workbook by its path below the root of the data and a hash of its content. Compared
cells are read once and cached by that hash.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from kept.core.artifact import is_safe_path
from kept.core.case import Case
from kept.errors import SetupError, SpecError
from kept.evaluators.environments.base import Defect, Item
from kept.evaluators.environments.datasets import Fields, Row, files_in, id_of, rows_of, values
from kept.evaluators.environments.pictures import path_from
from kept.evaluators.environments.spreadsheetbench.cells import differences
from kept.evaluators.environments.spreadsheetbench.workbench import Looked, look_into

DATASET = "dataset.json"
MOST_BYTES = 64 * 1024 * 1024
"""Maximum size of one workbook of the data."""

_NAMES = (
    re.compile(r"(?P<n>\d+)_.*_(?P<part>input|answer)\.xlsx"),
    re.compile(r"(?P<n>\d+)_.*_(?P<part>init|golden)\.xlsx"),
    re.compile(r"(?P<part>initial|golden)\.xlsx"),
)
"""File names of workbooks: of all 912 tasks, and two forms of the 400 verified ones."""

_GOLD = ("answer", "golden")

SOME = "one of its workbooks, and not all, already has what is expected before anything is done"
ALL = "its workbooks already have what is expected before anything is done"


class Pair(NamedTuple):
    """A workbook and the expected one."""

    input: Path
    gold: Path


@dataclass(slots=True)
class Books:
    """Workbooks of the data."""

    root: Path
    _looked: dict[str, Looked] = field(default_factory=dict[str, Looked])
    _rows: dict[str, Row] | None = None

    def items(self, path: Path, fields: Fields) -> Iterator[Item]:
        """The tasks of a file, or of a folder with dataset.json or other files."""
        dataset = path / DATASET
        for file in [dataset] if dataset.is_file() else files_in(path):
            for row in rows_of(file):
                yield from self._item(row, fields)

    def gold(self, case: Case, n: int) -> Looked:
        """Expected cells of a workbook of a case; `n` from 0."""
        data = values(case)
        _, _, path, mark = data["workbooks"][n]
        return self._look(self.root / path, mark, position=data["answer_position"])

    def untouched(self, case: Case) -> list[bool]:
        """For each workbook of a case, True if it is right before anything is done."""
        found: list[bool] = []
        for n, (path, mark, _, _) in enumerate(values(case)["workbooks"]):
            gold = self.gold(case, n)
            if "unreadable" in gold:
                found.append(False)
                continue
            mine = self._look(self.root / path, mark, areas=gold["areas"])
            readable = "unreadable" not in mine
            found.append(readable and not any(differences(gold, mine, gold["areas"])))
        return found

    def content(self, case: Case, n: int) -> bytes:
        """Content of a workbook of a case; raises `SetupError` if it is gone or has changed."""
        name, mark, _, _ = values(case)["workbooks"][n]
        path = self.root / name
        try:
            data = path.read_bytes()
        except OSError as error:
            raise SetupError(f"cannot read the workbook {path}: {error.strerror}") from error
        if _hashed(data) != mark:
            raise SetupError(
                f"the workbook {path} has changed since its case was read",
                hint="put the workbook back, or start another run",
            )
        return data

    def defects(self, items: Sequence[Item]) -> Iterator[Defect]:
        """Cases that are solved without any work, in part or whole."""
        for case, _ in items:
            solved = self.untouched(case)
            if any(solved):
                yield Defect(case.id, ALL if all(solved) else SOME)

    def _item(self, row: Row, fields: Fields) -> Iterator[Item]:
        full = self._whole(row)
        instruction = fields.text(full, ("instruction",))
        position = fields.text(full, ("answer_position",))
        folder = self._folder(row, fields)
        if instruction is None or position is None or folder is None:
            return
        pairs = list(_pairs(folder, row, fields))
        marked: list[list[str]] = []
        for pair in pairs:
            found = self._marked(pair, position, row, fields)
            if found is None:
                return  # the others have the same position, and mostly the same fault
            marked.append(found)
        if not marked:
            return
        first = pairs[0].input
        preview = look_into(first, "A1", preview=True)
        if "unreadable" in preview:
            fields.wrong(row, f"the workbook {first} cannot be used: {preview['unreadable']}")
            return
        data: dict[str, Any] = {"instruction": instruction, "answer_position": position}
        data["instruction_type"] = str(full.data.get("instruction_type") or "")
        data["spreadsheet_path"] = path_from(self.root, folder)
        yield Item(
            Case(id_of(row), {**data, "preview": preview["preview"], "workbooks": marked}),
            row.where,
        )

    def _whole(self, row: Row) -> Row:
        """Complete a row of a published split, which has the id only, from dataset.json."""
        if row.data.get("instruction") is not None:
            return row
        if self._rows is None:
            dataset = self.root / DATASET
            try:
                found = list(rows_of(dataset)) if dataset.is_file() else []
            except SpecError:
                found = []
            self._rows = {id_of(one): one for one in found}
        other = self._rows.get(id_of(row))
        return Row({**other.data, **row.data}, row.path, row.number, row.line) if other else row

    def _folder(self, row: Row, fields: Fields) -> Path | None:
        given = str(row.data.get("spreadsheet_path") or f"spreadsheet/{id_of(row)}")
        if not is_safe_path(given.rstrip("/")):
            fields.wrong(row, f"`spreadsheet_path` is `{given}`, which leaves the data")
            return None
        places = [self.root / given, row.path.parent / given]
        place = next((one for one in places if one.is_dir()), None)
        if place is None:
            looked = ", ".join(dict.fromkeys(str(one.parent) for one in places))
            fields.wrong(row, f"there is no folder `{given}` in {looked}")
        return place

    def _marked(self, pair: Pair, position: str, row: Row, fields: Fields) -> list[str] | None:
        """Paths and hashes of a pair; None, and a problem, if it cannot be compared."""
        marked: list[str] = []
        for path in pair:
            try:
                size = path.stat().st_size
                data = path.read_bytes() if size <= MOST_BYTES else b""
            except OSError as error:
                fields.wrong(row, f"cannot read the workbook {path}: {error.strerror}")
                return None
            if not data:
                fields.wrong(row, f"the workbook {path} has {size:,} bytes, which is not usable")
                return None
            marked += [path_from(self.root, path), _hashed(data)]
        gold = self._look(pair.gold, marked[3], position=position)
        why = gold.get("unreadable", "")
        if not why:
            lacks = {area[0] for area in gold["areas"]} - {*gold["sheets"]}
            why = f"there is no sheet `{sorted(lacks)[0]}`" if lacks else ""
        if why:
            fields.wrong(row, f"the workbook {pair.gold} cannot be used: {why}")
            return None
        return marked

    def _look(self, path: Path, mark: str, position: str = "", areas: Sequence[Any] = ()) -> Looked:
        key = f"{mark} {position} {areas}"
        if key not in self._looked:
            self._looked[key] = look_into(path, position, areas)
        return self._looked[key]


def _pairs(folder: Path, row: Row, fields: Fields) -> Iterator[Pair]:
    """The workbooks of a task in the order of their numbers."""
    found: dict[int, dict[bool, Path]] = {}
    for path in sorted(folder.iterdir()):
        known = next((match for one in _NAMES if (match := one.fullmatch(path.name))), None)
        if known is not None:
            groups: Mapping[str, str] = known.groupdict()
            found.setdefault(int(groups.get("n") or 1), {})[groups["part"] in _GOLD] = path
    if not found:
        fields.wrong(row, f"there is no workbook in {folder}")
    for _, parts in sorted(found.items()):
        if len(parts) == 2:
            yield Pair(parts[False], parts[True])
        else:
            ((is_gold, path),) = parts.items()
            lacks = "that it is made from" if is_gold else "with its answer"
            fields.wrong(row, f"beside {path} there is no workbook {lacks}")


def _hashed(data: bytes) -> str:
    return sha256(data).hexdigest()[:16]
