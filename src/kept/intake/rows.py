"""Cases that somebody has: lines of JSON, a list in JSON, or a csv, each row with its line."""

import csv
import io
import json
from pathlib import Path
from typing import Any, cast

from kept.errors import Problem, SpecError
from kept.intake.reading import text_of
from kept.spec.source import kind_of, shown

SUFFIXES = (".jsonl", ".json", ".csv")


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a file; raises `SpecError` with every row that is wrong."""
    text = text_of(path, limited=False)
    found: list[tuple[int, object]] = []
    problems: list[Problem] = []

    def wrong(line: int, message: str, hint: str | None = None) -> None:
        problems.append(Problem(f"{shown(path)}:{line}", "", message, hint))

    if path.suffix == ".csv":
        found = _csv(text, wrong)
    elif path.suffix == ".json":
        found = _list(text, wrong)
    else:
        for number, line in enumerate(text.split("\n"), 1):
            if line.strip():
                try:
                    found.append((number, json.loads(line)))
                except (ValueError, RecursionError) as error:
                    wrong(number, f"not JSON: {getattr(error, 'msg', 'nested too deeply')}")
    rows: list[dict[str, Any]] = []
    for line, value in found:
        if not isinstance(value, dict):
            wrong(line, f"{kind_of(value)}, where an object with fields was expected")
            continue
        row = cast("dict[str, Any]", value)
        lack = [name for name in (rows[0] if rows else ()) if name not in row]
        if lack:
            wrong(line, f"no `{lack[0]}`, which the rows before have")
        rows.append(row)
    if not rows and not problems:
        wrong(1, "there are no cases in it")
    if problems:
        raise SpecError(problems)
    return rows


def _list(text: str, wrong: Any) -> list[tuple[int, object]]:  # noqa: ANN401 # a function
    try:
        data: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        why = getattr(error, "msg", "nested too deeply")
        wrong(getattr(error, "lineno", 1), f"not JSON: {why}")
        return []
    if not isinstance(data, list):
        wrong(1, "not a list of cases")
        return []
    # the place in the list: lines are not known
    return list(enumerate(cast("list[object]", data), 1))


def _csv(text: str, wrong: Any) -> list[tuple[int, object]]:  # noqa: ANN401 # a function
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    found: list[tuple[int, object]] = []
    header: list[str] = []
    try:
        for row in reader:
            if not header:
                header = [cell.strip() for cell in row]
                for name in dict.fromkeys(name for name in header if header.count(name) > 1):
                    wrong(1, f"two columns are named `{name}`")
            elif any(cell.strip() for cell in row):
                if len(row) != len(header):
                    message = f"{len(row)} cells, where the first line has {len(header)}"
                    wrong(reader.line_num, message, "put quotes round a text with a comma")
                    continue
                found.append((reader.line_num, dict(zip(header, row, strict=True))))
    except csv.Error as error:
        wrong(reader.line_num, f"not csv: {error}")
    return found
