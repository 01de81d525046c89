"""Tasks in the format of SpreadsheetBench, with workbooks made here: sums of a column by name."""

import io
import json
import re
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import openpyxl

SPREADSHEETS = "data/spreadsheetbench_verified_400"
SPLIT = "data/spreadsheetbench_split"
TIME = b"2020-01-01T00:00:00Z"


def workbook(cells: Mapping[str, object], sheet: str = "Sales") -> bytes:
    """A workbook of one sheet with some cells."""
    book: Any = openpyxl.Workbook()
    book.active.title = sheet
    for name, value in cells.items():
        book[sheet][name] = value
    saved = io.BytesIO()
    book.save(saved)
    return timeless(saved.getvalue())


def timeless(data: bytes) -> bytes:
    """The same workbook without the time at which it was made: equal data is equal to the byte."""
    told = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as given, zipfile.ZipFile(told, "w") as made:
        for one in given.infolist():
            content = re.sub(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", TIME, given.read(one))
            made.writestr(zipfile.ZipInfo(one.filename), content)
    return told.getvalue()


def rows(n: int, case: int) -> dict[str, object]:
    """The data of a workbook: amounts in B2:B4, which differ by task and by workbook."""
    found: dict[str, object] = {"A1": "item", "B1": "amount", "C1": "double"}
    for row in (2, 3, 4):
        found |= {f"A{row}": f"thing {row}", f"B{row}": 10 * n + row + 100 * case}
    return found


def doubled(n: int, case: int) -> dict[str, object]:
    """The same with what is expected: twice the amount in C2:C4."""
    found = rows(n, case)
    return found | {f"C{row}": 2 * int(str(found[f"B{row}"])) for row in (2, 3, 4)}


def row(n: int) -> dict[str, object]:
    """A row of dataset.json; ids are numbers and texts."""
    return {
        "id": 40_000 + n if n % 2 else f"{n}-{n}",
        "instruction": f"Task {n}: put twice the amount of column B into column C.",
        "spreadsheet_path": f"spreadsheet/{row_id(n)}",
        "instruction_type": "Cell-Level Manipulation" if n % 2 else "Sheet-Level Manipulation",
        "answer_position": "C2:C4" if n % 2 else "'Sales'!C2:C4",
    }


def row_id(n: int) -> str:
    return str(40_000 + n) if n % 2 else f"{n}-{n}"


def write_task(root: Path, n: int, cases: int = 2, *, verified: bool = False) -> dict[str, object]:
    """The folder of one task, in the scheme of all tasks or of the verified ones."""
    folder = root / "spreadsheet" / row_id(n)
    folder.mkdir(parents=True, exist_ok=True)
    first, second = ("init", "golden") if verified else ("input", "answer")
    for case in range(1, cases + 1):
        start = f"{case}_{row_id(n)}"
        (folder / f"{start}_{first}.xlsx").write_bytes(workbook(rows(n, case)))
        (folder / f"{start}_{second}.xlsx").write_bytes(workbook(doubled(n, case)))
    return row(n)


def write_tasks(root: Path, size: int = 4, cases: int = 2) -> Path:
    """A dataset.json with its folders."""
    given = [write_task(root, n, cases, verified=n % 3 == 2) for n in range(size)]
    path = root / "dataset.json"
    path.write_text(json.dumps(given))
    return path


def write_split(folder: Path, sizes: Sequence[int] = (8, 8, 2), cases: int = 1) -> Path:
    """Tasks and a split whose rows have ids alone, as a published one; where the config looks."""
    write_tasks(folder / SPREADSHEETS, sum(sizes), cases)
    n = 0
    for name, size in zip(("train", "val", "test"), sizes, strict=True):
        place = folder / SPLIT / name
        place.mkdir(parents=True, exist_ok=True)
        given = [
            {"id": row_id(n + one), "spreadsheet_path": row(n + one)["spreadsheet_path"]}
            for one in range(size)
        ]
        (place / "items.json").write_text(json.dumps(given))
        n += size
    return folder / SPLIT


def program(factor: int = 2, formulas: bool = False) -> str:
    """What a student says: it writes the amounts times a factor, as values or as formulas."""
    value = f'f"=B{{row}}*{factor}"' if formulas else f"sheet.cell(row, 2).value * {factor}"
    return f"""\
The amounts stand in column B.

```python
import openpyxl

INPUT_PATH = "somewhere.xlsx"
book = openpyxl.load_workbook(INPUT_PATH)
sheet = book["Sales"]
for row in range(2, sheet.max_row + 1):
    sheet.cell(row, 3).value = {value}
book.save(OUTPUT_PATH)
```
"""
