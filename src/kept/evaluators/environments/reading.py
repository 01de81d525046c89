"""Rows of data files, each with the line it begins in: JSON, JSON lines and CSV.

Knows nothing of what a row should say.
"""

import csv
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from kept.core.parsing import ParseLimit, parse_json, parse_json_at
from kept.errors import Problem, SetupError, SpecError

SUFFIXES = (".json", ".jsonl", ".ndjson", ".csv")
MANIFEST = "split_manifest.json"
"""Lies beside the parts of a generated split, and is none."""

LISTS = ("data", "items", "examples", "cases", "questions")
"""Keys under which a JSON object may hold its rows."""

MOST = 20
"""Problems that are told at once."""

FIELD_CHARS = 2**31 - 1
"""Characters of a field of a CSV file; the 131,072 of `csv` cut evidence and passages off."""

_PARQUET = ".parquet"
_TO_JSONL = "pandas.read_parquet(FILE).to_json(NEW, orient='records', lines=True)"
_BLANK = " \t\r\n"


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a file."""

    data: dict[str, Any]
    path: Path
    number: int
    """Of the row, from 1."""
    line: int
    """Of the file."""
    alone: bool = True
    """Whether no other row begins in that line: a file of one line names none by it."""

    @property
    def where(self) -> str:
        """`file:line`."""
        return f"{self.path}:{self.line}"


def rows_in(path: Path, suffixes: Sequence[str] = SUFFIXES) -> Iterator[Row]:
    """The rows of a file, or of all files of a folder in the order of their names."""
    for file in files_in(path, suffixes):
        yield from rows_of(file)


def files_in(path: Path, suffixes: Sequence[str] = SUFFIXES) -> list[Path]:
    """A file, or those of a folder."""
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise SetupError(f"there is no {path}")
    found = sorted(one for one in path.iterdir() if one.suffix.lower() in suffixes)
    found = [one for one in found if one.is_file() and one.name != MANIFEST]
    if not found:
        for one in path.iterdir():
            _refuse_parquet(one)
        raise SetupError(f"there is no data in {path}", hint=f"files end in {', '.join(suffixes)}")
    return found


def rows_of(path: Path) -> Iterator[Row]:
    """The rows of one file."""
    _refuse_parquet(path)
    suffix = path.suffix.lower()
    if suffix == ".csv":
        return _csv(path)
    return _json(path) if suffix == ".json" else _json_lines(path)


def refuse(problems: Sequence[Problem]) -> None:
    """Raise problems, if there are any."""
    if problems:
        more = len(problems) - MOST
        last = (
            [Problem(problems[MOST].where, "", f"and {more} more like these")] if more > 0 else []
        )
        raise SpecError([*problems[:MOST], *last])


def _refuse_parquet(path: Path) -> None:
    """An error that says how to convert a Parquet file, the form of many published datasets."""
    if path.suffix.lower() == _PARQUET:
        hint = f"convert it: {_TO_JSONL}; pictures go into files, named in the rows"
        message = f"{path} is a Parquet file, and rows are read from JSON, JSON lines and CSV"
        raise SetupError(message, hint=hint)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        line = path.read_bytes()[: error.start].count(b"\n") + 1
        raise SpecError([Problem(f"{path}:{line}", "", "not UTF-8 text")]) from error
    except OSError as error:
        raise SetupError(f"cannot read {path}: {error.strerror}") from error


def _json_lines(path: Path) -> Iterator[Row]:
    problems: list[Problem] = []
    number = 0
    # not `splitlines`, which also parts at signs that may stand inside a JSON text
    for line, text in enumerate(_text(path).split("\n"), 1):
        if not text.strip():
            continue
        number += 1
        try:
            data = parse_json(text)
        except ValueError as error:
            problems.append(Problem(f"{path}:{line}", "", f"not JSON: {error}"))
            continue
        if isinstance(data, dict):
            yield Row(cast("dict[str, Any]", data), path, number, line)
        else:
            problems.append(Problem(f"{path}:{line}", "", "no JSON object, where one was expected"))
    refuse(problems)


def _json(path: Path) -> Iterator[Row]:
    text = _text(path)
    problems: list[Problem] = []
    try:
        for number, (line, alone, row) in enumerate(_rows(text), 1):
            if isinstance(row, dict):
                yield Row(cast("dict[str, Any]", row), path, number, line, alone)
            else:
                what = "" if alone else f"row {number}: "
                what += "no JSON object, where one was expected"
                problems.append(Problem(f"{path}:{line}", "", what))
    except json.JSONDecodeError as error:
        what = error.msg if error.msg == _NO_ROWS else f"not JSON: {error.msg}"
        fault = Problem(f"{path}:{error.lineno}", "", what)
        raise SpecError([*problems, fault]) from error
    except ParseLimit as error:
        raise SpecError([Problem(f"{path}:1", "", f"not JSON: {error}")]) from error
    refuse(problems)


_KNOWN = ", ".join(f"`{one}`" for one in LISTS)
_NO_ROWS = f"no list of rows, nor an object with one in {_KNOWN}"


def _rows(text: str) -> Iterator[tuple[int, bool, object]]:
    """The rows of a list, each with its line, and whether it alone begins there."""
    at = _after(text, 0)
    if text[at : at + 1] == "{":
        at = _held_list(text, at)
    if text[at : at + 1] != "[":
        raise json.JSONDecodeError(_NO_ROWS, text, at)
    line, counted, before = 1, 0, 0
    at = _after(text, at + 1)
    while text[at : at + 1] != "]":
        line, counted = line + text.count("\n", counted, at), at
        row, end = parse_json_at(text, at)
        begin, at = at, _after(text, end)
        following = _after(text, at + 1) if text[at : at + 1] == "," else len(text)
        last = text[following : following + 1] in ("", "]")
        yield line, line != before and (last or "\n" in text[begin:following]), row
        before = line
        if text[at : at + 1] == ",":
            at = _after(text, at + 1)
        elif text[at : at + 1] != "]":
            raise json.JSONDecodeError("a comma or the end of the list was expected", text, at)


def _held_list(text: str, at: int) -> int:
    """Where the list of rows begins in an object; where the object begins if it holds none."""
    start, at = at, _after(text, at + 1)
    while text[at : at + 1] == '"':
        key, end = parse_json_at(text, at)
        at = _after(text, _after(text, end) + 1)
        if key in LISTS and text[at : at + 1] == "[":
            return at
        _, end = parse_json_at(text, at)
        at = _after(text, _after(text, end) + 1)
    return start


def _after(text: str, at: int) -> int:
    while at < len(text) and text[at] in _BLANK:
        at += 1
    return at


def _csv(path: Path) -> Iterator[Row]:
    csv.field_size_limit(FIELD_CHARS)
    reader = csv.DictReader(_text(path).splitlines(keepends=True), strict=True)
    begins = 2
    try:
        for number, row in enumerate(reader, 1):
            if None in row or None in row.values():
                message = "more or fewer columns than the head has"
                raise SpecError([Problem(f"{path}:{begins}", "", message)])
            yield Row(dict(row), path, number, begins)
            begins = reader.line_num + 1
    except csv.Error as error:
        raise SpecError([Problem(f"{path}:{reader.line_num}", "", f"not CSV: {error}")]) from error
