"""Cells of workbooks as the benchmark compares them.

`look` reads one workbook and runs in a bounded process: a workbook may come from a program that a
model wrote. All else works on what it returned, which is JSON.
"""

import base64
import io
import math
import re
import warnings
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, time, timedelta
from typing import Any, NamedTuple, Protocol

from kept.core.text import one_line
from kept.evaluators.tools.documents import Unreadable, library

MOST_UNPACKED = 256 * 1024 * 1024
"""Maximum size of an unpacked workbook in bytes."""

MOST_CELLS = 200_000
"""Maximum number of cells with a value in one workbook."""

PREVIEW_ROWS, PREVIEW_COLUMNS, PREVIEW_LETTERS = 5, 20, 40
PREVIEW_SHEETS = 30

_LAST_ROW, _LAST_COLUMN = 1_048_576, 16_384
_EPOCH = datetime(1899, 12, 30)  # noqa: DTZ001 # Excel knows no zones
_CELL = r"\$?([A-Za-z]{1,3})\$?([0-9]{1,7})"
_CELLS = re.compile(rf"{_CELL}(?::{_CELL})?")
_COLUMNS = re.compile(r"\$?([A-Za-z]{1,3}):\$?([A-Za-z]{1,3})")
_ROWS = re.compile(r"\$?([0-9]{1,7}):\$?([0-9]{1,7})")
_QUOTES = "'\" \t\n"

Value = str | float | list[Any] | None
"""A cell as it is compared; a list stands for a kind that no text or number equals."""


class Area(NamedTuple):
    """Cells of one sheet that are compared, numbered from 1."""

    sheet: str
    left: int
    top: int
    right: int
    bottom: int


class Cell(Protocol):
    """Part of an openpyxl cell that is used here."""

    value: object
    coordinate: str
    row: int
    data_type: str


class Sheet(Protocol):
    """Part of an openpyxl sheet that is used here."""

    title: str
    dimensions: str
    max_row: int
    max_column: int


class Book(Protocol):
    """Part of an openpyxl workbook that is used here."""

    sheetnames: Sequence[str]
    worksheets: Sequence[Sheet]


class Difference(NamedTuple):
    """A cell that is not as expected."""

    where: str
    """`Sheet!A1`, or the name of a sheet that is missing."""
    got: str


def normal(value: object) -> Value:
    """A value as the benchmark compares it.

    Numbers, texts that are numbers, and truth values have two decimals. A point in time is a whole
    number of days. A time of day loses its last three characters, which are its seconds.
    """
    match value:
        case None | "":
            return None
        case bool() | int() | float():
            return _rounded(float(value), str(value))
        case time():
            return str(value)[:-3]
        case datetime():
            passed = value.replace(tzinfo=None) - _EPOCH
            return float(round(passed.days + passed.seconds / 86_400, 0))
        case timedelta():
            return ["duration", value.total_seconds()]
        case str():
            try:
                return _rounded(float(value), value)
            except ValueError:
                return value
        case _:
            return ["other", str(value)]


def _rounded(number: float, text: str) -> float | str:
    # nan does not even equal itself
    return round(number, 2) if math.isfinite(number) else text


def areas_of(position: str, sheets: Sequence[str]) -> list[Area]:
    """Areas that a text like `'Data'!A1:B2,C3` names; raises `ValueError` if there are none.

    A range without a sheet name is on the first sheet.
    """
    found: list[Area] = []
    pending = ""
    for piece in position.split(","):
        text = pending + piece
        name, _, cells = text.rpartition("!")
        area = _area(cells.strip(_QUOTES))
        if area is None:
            # the comma may be a part of a name
            pending = text + ","
            continue
        pending = ""
        sheet = name.strip(_QUOTES)
        plain = sheet.replace("''", "'")
        if not sheet:
            sheet = sheets[0] if sheets else ""
        elif plain in sheets and sheet not in sheets:
            sheet = plain
        found.append(area._replace(sheet=sheet))
    if pending.strip(_QUOTES + ",") or not found:
        raise ValueError(f"`{one_line(position, 80)}` is no range of cells, as `'Data'!A1:B2` is")
    return found


def _area(text: str) -> Area | None:
    if found := _CELLS.fullmatch(text):
        left, top, right, bottom = found.groups()
        right, bottom = right or left, bottom or top
        columns = sorted((_number(left), _number(right)))
        rows = sorted((int(top), int(bottom)))
        return Area("", columns[0], rows[0], columns[1], rows[1])
    if found := _COLUMNS.fullmatch(text):
        columns = sorted(map(_number, found.groups()))
        return Area("", columns[0], 1, columns[1], _LAST_ROW)
    if found := _ROWS.fullmatch(text):
        rows = sorted(map(int, found.groups()))
        return Area("", 1, rows[0], _LAST_COLUMN, rows[1])
    return None


def _number(letters: str) -> int:
    # base 26 without a zero: A is 1, Z is 26, AA is 27
    number = 0
    for letter in letters.upper():
        number = number * 26 + ord(letter) - ord("A") + 1
    return number


def differences(
    expected: Mapping[str, Any], got: Mapping[str, Any], areas: Sequence[Sequence[Any]]
) -> Iterator[Difference]:
    """Cells in which two workbooks differ, in the order of the areas, row by row."""
    done: set[tuple[str, str]] = set()
    for one in areas:
        area = Area(*one)
        if area.sheet not in got["sheets"]:
            yield Difference(f"the sheet `{area.sheet}`", "not there")
            continue
        mine: Mapping[str, Value] = expected["cells"].get(area.sheet, {})
        theirs: Mapping[str, Value] = got["cells"].get(area.sheet, {})
        for name in sorted({*mine, *theirs}, key=_place):
            row, column = _place(name)
            inside = area.left <= column <= area.right and area.top <= row <= area.bottom
            if not inside or (area.sheet, name) in done or mine.get(name) == theirs.get(name):
                continue
            done.add((area.sheet, name))
            value = theirs.get(name)
            shown = value[1] if isinstance(value, list) else value
            yield Difference(f"{area.sheet}!{name}", one_line(str(shown), 60))


def _place(name: str) -> tuple[int, int]:
    letters = name.rstrip("0123456789")
    return int(name[len(letters) :]), _number(letters)


def look(
    *,
    path: str = "",
    data: str = "",
    position: str = "",
    areas: Sequence[Sequence[Any]] = (),
    preview: bool = False,
    formulas: bool = False,
) -> dict[str, Any]:
    """Read the compared cells of a workbook; `unreadable` is the reason if that fails.

    The workbook is at `path` or in `data` as base64. `areas` of another workbook replace
    `position`. With `formulas` the result says if a compared cell holds a formula.
    """
    try:
        if data:
            book = base64.b64decode(data)
        else:
            with open(path, "rb") as file:  # noqa: PTH123 # this runs in a separate process
                book = file.read(MOST_UNPACKED)
        return _looked(book, position, areas, preview=preview, formulas=formulas)
    except (Unreadable, ValueError) as error:
        return {"unreadable": one_line(str(error), 300)}
    except Exception as error:  # a broken file leads a parser anywhere
        if isinstance(error, MemoryError):
            raise
        words = one_line(f"{type(error).__name__}: {error}", 200)
        return {"unreadable": f"it is no sound workbook ({words})"}


def _looked(
    data: bytes, position: str, areas: Sequence[Sequence[Any]], *, preview: bool, formulas: bool
) -> dict[str, Any]:
    _check(data)
    book = _opened(data, values=True)
    names = list(book.sheetnames)
    tables = {sheet.title: sheet for sheet in book.worksheets}
    chosen = [Area(*one) for one in areas] or areas_of(position, names)
    found: dict[str, Any] = {
        "sheets": [*tables],
        "areas": [list(area) for area in chosen],
        "cells": _cells(tables, chosen),
    }
    if preview:
        found["preview"] = _preview(tables)
    if formulas:
        raw = {sheet.title: sheet for sheet in _opened(data, values=False).worksheets}
        found["formulas"] = any(
            cell.data_type == "f" for area in chosen for cell in _inside(raw, area)
        )
    return found


def _opened(data: bytes, *, values: bool) -> Book:
    openpyxl = library("openpyxl")
    with warnings.catch_warnings():
        # warnings about parts that openpyxl leaves out, which are no cells
        warnings.simplefilter("ignore")
        return openpyxl.load_workbook(io.BytesIO(data), data_only=values)


def _check(data: bytes) -> None:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            size = sum(one.file_size for one in archive.infolist())
    except zipfile.BadZipFile as error:
        raise Unreadable("it is no workbook, or only a part of one") from error
    if size > MOST_UNPACKED:
        most = MOST_UNPACKED // 2**20
        raise Unreadable(f"it unpacks to {size / 2**20:,.0f} MiB, and at most {most} MiB are read")


def _cells(tables: Mapping[str, Sheet], areas: Sequence[Area]) -> dict[str, dict[str, Value]]:
    found: dict[str, dict[str, Value]] = {}
    for area in areas:
        mine = found.setdefault(area.sheet, {})
        for cell in _inside(tables, area):
            value = normal(cell.value)
            if value is not None:
                mine[cell.coordinate] = value
        if len(mine) > MOST_CELLS:
            raise Unreadable(f"more than {MOST_CELLS:,} cells would be compared")
    return found


def _inside(tables: Mapping[str, Sheet], area: Area) -> Iterator[Cell]:
    """The cells of an area that are there, row by row."""
    sheet = tables.get(area.sheet)
    if sheet is None:
        return
    # not `iter_rows`, which makes every cell up to the last, however far away that is
    there: Mapping[tuple[int, int], Cell] = vars(sheet)["_cells"]
    for row, column in sorted(there):
        if area.top <= row <= area.bottom and area.left <= column <= area.right:
            yield there[row, column]


def _preview(tables: Mapping[str, Sheet]) -> str:
    parts: list[str] = []
    for title, sheet in list(tables.items())[:PREVIEW_SHEETS]:
        size = f"dim={sheet.dimensions}, max_row={sheet.max_row}, max_col={sheet.max_column}"
        lines = [f"## Sheet: {title}  ({size})"]
        last = Area(title, 1, 1, PREVIEW_COLUMNS, PREVIEW_ROWS)
        rows: dict[int, list[str]] = {}
        for cell in _inside(tables, last):
            if cell.value is not None:
                told = f"{cell.coordinate}={one_line(str(cell.value), PREVIEW_LETTERS)}"
                rows.setdefault(cell.row, []).append(told)
        lines += [" | ".join(row) for row in rows.values()]
        more = sheet.max_row - PREVIEW_ROWS
        lines += [f"... ({more} more rows)"] if more > 0 else []
        parts.append("\n".join(lines))
    left = len(tables) - PREVIEW_SHEETS
    parts += [f"... ({left} more sheets)"] if left > 0 else []
    return "\n\n".join(parts)
