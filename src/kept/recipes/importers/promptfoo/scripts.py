"""Files of Python that assertions name: copied into the task under names that stay in it.

What they import from beside them comes along under its own name, for that is how they ask for it.
"""

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from kept.errors import SetupError
from kept.evaluators.scorers.assertions.python import FILE, file_of
from kept.recipes.importers.importing import imported, parsed
from kept.recipes.importers.promptfoo.cases import Made
from kept.recipes.importers.promptfoo.files import is_below
from kept.recipes.importers.reading import text_of
from kept.spec.source import Source

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


def read_scripts(source: Source, copies: dict[str, str]) -> tuple[dict[str, str], list[str]]:
    """The texts of copies and of what they import, and a note on each package that stays behind."""
    texts = {copy: text_of(source.folder / name) for copy, name in copies.items()}
    packages: dict[str, None] = {}
    for copy, name in copies.items():
        path = source.folder / name
        modules, beside = imported(path, parsed(path, texts[copy]))
        packages |= dict.fromkeys(beside)
        for module, text in modules.items():
            if not is_below(source, path.with_name(module)):
                hint = "copy it there: all that is in the folder of the config may be read"
                message = f"{module}, which {name} imports, is not below the folder of the config"
                raise SetupError(message, hint=hint)
            if texts.setdefault(f"{FOLDER}/{module}", text) != text:
                hint = "give one of them another name"
                raise SetupError(f"assertions use two files that are named {module}", hint=hint)
    notes = [f"`{name}` is imported and not copied: put it into {FOLDER}/" for name in packages]
    return texts, notes


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
