"""Files of Python that assertions name: copied into the task under names that stay in it."""

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from kept.intake.promptfoo.cases import Made
from kept.scorers.assert_python import FILE, file_of

FOLDER = "checks"


def take_scripts(cases: list[Made]) -> dict[str, str]:
    """Have the assertions name the copies; the file of the config that each copy is of."""
    copies: dict[str, str] = {}
    for row in (row for made in cases for row in _in_python(made.asserts)):
        value = str(row["value"])
        file, _ = file_of(value)
        if not file:
            continue
        if file not in copies:
            copies[file] = _free(PurePosixPath(file).stem, set(copies.values()))
        row["value"] = FILE + copies[file] + value.removeprefix(FILE + file)
    return {copy: file for file, copy in copies.items()}


def _in_python(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for row in rows:
        yield from _in_python(row.get("assert") or [])
        if str(row["type"]).removeprefix("not-") == "python":
            yield row


def _free(stem: str, taken: set[str]) -> str:
    name, number = f"{FOLDER}/{stem}.py", 1
    while name in taken:
        number += 1
        name = f"{FOLDER}/{stem}_{number}.py"
    return name
