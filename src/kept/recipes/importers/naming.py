"""Names of columns that a prompt can say, for a prompt names a field by one word."""

import re
from collections.abc import Sequence
from typing import Any

from kept.errors import SetupError

_ODD = re.compile(r"[^\w-]+")


def named(rows: Sequence[dict[str, Any]], file: str) -> tuple[list[dict[str, Any]], list[str]]:
    """The rows with such names, and a note on each column that is called otherwise now."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    names = {column: _word(column, n) for n, column in enumerate(columns, 1)}
    taken: dict[str, str] = {}
    for column, name in names.items():
        if name in taken:
            hint = "a prompt names a field by letters, digits, `_` and `-` alone"
            message = f"the columns `{taken[name]}` and `{column}` of {file} are both `{name}`"
            raise SetupError(message, hint=hint)
        taken[name] = column
    notes = [
        f"the column `{column}` is the field `{name}`, which a prompt can name"
        for column, name in names.items()
        if name != column
    ]
    return [{names[column]: value for column, value in row.items()} for row in rows], notes


def _word(column: str, number: int) -> str:
    word = _ODD.sub("_", column).strip("_") if _ODD.search(column) else column
    # a number alone would stand for a place in the template of an example
    return f"field_{word or number}" if not word or word.isdigit() else word
