"""Cases that somebody has: lines of JSON, a list in JSON, or a csv, each row with its line."""

import csv
import io
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast

from kept.core.parsing import parse_json
from kept.core.words import count
from kept.errors import Problem, SpecError
from kept.recipes.importers.reading import text_of
from kept.spec.source import kind_of, shown

SUFFIXES = (".jsonl", ".json", ".csv")


class Wrong(Protocol):
    """Told what is wrong with a line."""

    def __call__(self, line: int, message: str, hint: str | None = None) -> None:
        """Keep it for whoever is told of all at once."""
        ...


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a file; raises `SpecError` with every row that is wrong."""
    text = text_of(path, limited=False)
    found: list[tuple[int, object]] = []
    problems: list[Problem] = []

    def wrong(line: int, message: str, hint: str | None = None) -> None:
        problems.append(Problem(f"{shown(path)}:{line}", "", message, hint))

    if path.suffix == ".csv":
        table = read_csv(text, wrong)
        _check_answers(table.header, wrong)
        found = [*table.rows]
    elif path.suffix == ".json":
        found = _list(text, wrong)
    else:
        for number, line in enumerate(text.split("\n"), 1):
            if line.strip():
                try:
                    found.append((number, parse_json(line)))
                except ValueError as error:
                    wrong(number, f"not JSON: {getattr(error, 'msg', error)}")
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


def _list(text: str, wrong: Wrong) -> list[tuple[int, object]]:
    try:
        data: Any = parse_json(text)
    except ValueError as error:
        wrong(getattr(error, "lineno", 1), f"not JSON: {getattr(error, 'msg', error)}")
        return []
    if not isinstance(data, list):
        wrong(1, "not a list of cases")
        return []
    # the place in the list: lines are not known
    return list(enumerate(cast("list[object]", data), 1))


class Table(NamedTuple):
    """A csv: the names of its columns, and its rows with their lines."""

    header: list[str]
    rows: list[tuple[int, dict[str, str]]]


def read_csv(text: str, wrong: Wrong) -> Table:
    """The rows that are right; those that are wrong are told by their lines."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=_between(text), strict=True)
    table = Table([], [])
    try:
        for row in reader:
            if not table.header:
                table.header.extend(cell.strip() for cell in row)
                _check_header(table.header, wrong)
            elif any(cell.strip() for cell in row):
                if len(row) != len(table.header):
                    message = (
                        f"{count(len(row), 'cell')}, where the first line has {len(table.header)}"
                    )
                    wrong(reader.line_num, message, "put quotes round a text with a comma")
                    continue
                table.rows.append((reader.line_num, dict(zip(table.header, row, strict=True))))
    except csv.Error as error:
        wrong(reader.line_num, f"not csv: {error}")
    return table


def _between(text: str) -> str:
    """What stands between cells: a comma, unless the first line has none and another sign."""
    first = text.lstrip().partition("\n")[0]
    others = (sign for sign in (";", "\t") if sign in first)
    return "," if "," in first else next(others, ",")


def _check_answers(header: list[str], wrong: Wrong) -> None:
    """A table of promptfoo's goes with a config."""
    for name in (name for name in header if name.startswith("__expected")):
        hint = "a config names it under `tests`: `kept init --from` with that config"
        wrong(1, f"`{name}` is what promptfoo asserts, and not an answer", hint)


def _check_header(header: list[str], wrong: Wrong) -> None:
    for name in dict.fromkeys(name for name in header if header.count(name) > 1):
        wrong(1, f"two columns are named `{name}`")
