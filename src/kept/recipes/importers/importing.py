"""The files beside a Python file that it imports, and those that they import in turn."""

import ast
from collections.abc import Collection, Iterator
from pathlib import Path

from kept.errors import SetupError
from kept.recipes.importers.reading import text_of


def imported(
    path: Path, tree: ast.Module, taken: Collection[str] = ()
) -> tuple[dict[str, str], list[str]]:
    """Texts of the modules beside a file by their names, and packages beside it.

    Those are refused that have the name of a file which the task has of its own.
    """
    texts: dict[str, str] = {}
    packages: dict[str, None] = {}
    waiting = list(_modules(tree))
    while waiting:
        name = waiting.pop(0)
        file = path.with_name(f"{name}.py")
        if (path.parent / name).is_dir():
            packages[f"{name}/"] = None
        elif file.name != path.name and file.name not in texts and file.is_file():
            if file.name in taken:
                hint = "give it another name"
                raise SetupError(
                    f"{file.name}, which {path.name} imports, is in the way", hint=hint
                )
            texts[file.name] = text_of(file)
            waiting += _modules(parsed(file, texts[file.name]))
    return texts, list(packages)


def parsed(file: Path, text: str) -> ast.Module:
    """A file of Python, read and not run."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError) as error:
        raise SetupError(f"{file.name} is not Python: {error}") from error


def _modules(tree: ast.Module) -> Iterator[str]:
    """The first part of every name that is imported."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]
