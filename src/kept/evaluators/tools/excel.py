"""The cells of Excel files, as CSV: every sheet under its name."""

import csv
import io
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

from kept.evaluators.tools.unreadable import Lines, Unreadable, library

MOST_CELLS = 5_000_000
"""Looked at, empty ones among them: a sheet may claim to have seventeen thousand million."""


def read(data: bytes, sheet: str | None, cells: str | None, most: int) -> str:
    """The cells of one sheet or of all; a range is one of the first sheet if none is named."""
    openpyxl = library("openpyxl")
    with warnings.catch_warnings():
        # of parts that it leaves out, which are no cells
        warnings.simplefilter("ignore")
        book = openpyxl.load_workbook(io.BytesIO(data), read_only=True, data_only=True)
        try:
            return _text(book, sheet, cells, most)
        finally:
            book.close()


def _text(book: Any, sheet: str | None, cells: str | None, most: int) -> str:  # noqa: ANN401 # of openpyxl
    there = {one.title: one for one in book.worksheets}
    if sheet is not None and sheet not in there:
        raise Unreadable(f"there is no sheet `{sheet}`; there is {', '.join(there)}")
    wanted = [sheet] if sheet is not None else list(there)[: 1 if cells else None]
    lines = Lines(most)
    for title in wanted:
        if len(wanted) > 1:
            lines.add(f"## {title}")
        for row in _rows(there[title], cells):
            lines.add(row)
        lines.add("")
    return lines.text()


def _rows(sheet: Any, cells: str | None) -> Iterator[str]:  # noqa: ANN401 # of openpyxl
    seen = 0
    for row in sheet.iter_rows(values_only=True, **_bounds(cells)):
        seen += len(row)
        if seen > MOST_CELLS:
            raise Unreadable(f"the sheet `{sheet.title}` has more than {MOST_CELLS:,} cells")
        if any(value is not None for value in row):
            yield _line(row)


def _bounds(cells: str | None) -> dict[str, int]:
    if cells is None:
        return {}
    try:
        left, top, right, bottom = library("openpyxl.utils").range_boundaries(cells)
    except (ValueError, TypeError) as error:
        raise Unreadable(f"`{cells}` is no range of cells, as `A1:E100` is") from error
    found = {"min_col": left, "min_row": top, "max_col": right, "max_row": bottom}
    return {name: value for name, value in found.items() if value is not None}


def _line(row: Iterable[object]) -> str:
    values = ["" if value is None else str(value) for value in row]
    while values and not values[-1]:
        values.pop()
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(values)
    return line.getvalue()
