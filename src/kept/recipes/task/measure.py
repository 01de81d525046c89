"""The files that a task's measure is made of, by their hashes: a resume compares them.

They are what the runner and the scorer name, and what those files name in turn: the imports of a
Python file, the words of a shell script; one without a suffix is known by its first line. Not among
them are files that a run may change, and those whose meaning is compared already.
"""

import ast
import os
import re
import warnings
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from kept.recipes.task.hashing import digest
from kept.recipes.task.naming import cwds, looked_up, modules, named, words
from kept.recipes.task.scorers import named_in
from kept.recipes.task.task import TaskSpec
from kept.spec.globs import NEVER, UNLESS_NAMED
from kept.spec.source import Source

MAX_FILES = 1000
"""Files of a folder; one with more holds data, and is not looked into."""

MAX_SCRIPT = 1024 * 1024
"""Bytes of a text that somebody wrote and that may name other files."""

MAX_NAMED = 5
"""Files that a warning names."""

SHELL = (".sh", ".bash")


def measure_files(source: Source, task: TaskSpec, artifacts: Collection[str]) -> dict[str, str]:
    """A hash of each file that scores depend on, by its name in the task's folder."""
    tree = source.folder.resolve()
    apart = _apart(source, task, artifacts)
    found = sorted(_made_of(tree, task, (*task.runner.lines, *named_in(task.scorer))))
    files = (path for path in found if not any(path.is_relative_to(other) for other in apart))
    return {f"`{_name(path, tree)}`": digest(path) for path in files}


def exposed(
    source: Source, task: TaskSpec, artifacts: Collection[str], hidden: Collection[Path]
) -> tuple[str, ...]:
    """What to be warned of: files of the scorer alone that the runner can read all the same."""
    tree = source.folder.resolve()
    scorer = _made_of(tree, task, named_in(task.scorer))
    shared = _made_of(tree, task, task.runner.lines)
    apart = (*_apart(source, task, artifacts), *hidden)
    seen = sorted(
        f"`{_name(path, tree)}`"
        for path in scorer - shared
        if path.is_relative_to(tree) and not any(path.is_relative_to(other) for other in apart)
    )
    if not seen:
        return ()
    more = f" and {len(seen) - MAX_NAMED} more" if len(seen) > MAX_NAMED else ""
    told = f"{', '.join(seen[:MAX_NAMED])}{more}"
    return (f"the runner can read what the scorer uses: {told}; list it in `sandbox.hidden`",)


def _made_of(tree: Path, task: TaskSpec, lines: Collection[str]) -> set[Path]:
    """The files that commands name, and those that these lead to."""
    places = (task.runner.cwd, *cwds(task.scorer.model_dump()))
    bases = tuple(dict.fromkeys((tree, *((tree / place).resolve() for place in places))))
    packages = {path for line in lines for name in modules(line) for path in _modules(bases, name)}
    return _reached(tree, bases, named(bases, lines) | packages)


def _apart(source: Source, task: TaskSpec, artifacts: Collection[str]) -> list[Path]:
    """What a run compares by its meaning, and what it or its commands may write to."""
    names = [*artifacts, *task.sandbox.writable, source.path.name]
    names += [task.cases.file] if task.cases else []
    names += [name for name in (task.logging.results_file, task.logging.candidate_dir) if name]
    return [(source.folder / name).resolve() for name in names]


def _reached(tree: Path, bases: tuple[Path, ...], first: Iterable[Path]) -> set[Path]:
    """Files, those in folders, and what they lead to."""
    reached: set[Path] = set()
    waiting = list(first)
    while waiting:
        path = waiting.pop()
        if path in reached:
            continue
        inside = path.is_relative_to(tree)
        if path.is_dir():
            # `.` and what is elsewhere are where a command works, and not what it is made of
            waiting += _files(path) if inside and path != tree else ()
        elif path.is_file() and (inside or _is_written(path)):
            reached.add(path)
            waiting += _leads_to(tree, bases, path)
    return reached


def _files(folder: Path) -> list[Path]:
    """The files of a folder; none when there are so many that they must be data."""
    found: list[Path] = []
    for inner, folders, names in os.walk(folder):
        folders[:] = set(folders) - NEVER - UNLESS_NAMED
        found.extend(Path(inner, name) for name in names)
        if len(found) > MAX_FILES:
            return []
    return found


def _is_written(path: Path) -> bool:
    """Whether somebody wrote it: outside the task's folder, a binary is the system's."""
    if any(path.is_relative_to(place) for place in ("/proc", "/sys", "/dev", "/run")):
        return False
    try:
        with path.open("rb") as file:
            return b"\0" not in file.read(4096)
    except OSError:
        return False


def _leads_to(tree: Path, bases: tuple[Path, ...], path: Path) -> Iterator[Path]:
    """The files of the task that a script names."""
    if path.suffix not in ("", ".py", *SHELL) or path.stat().st_size > MAX_SCRIPT:
        return
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    # where a script stands is where Python looks for its imports
    around = (path.parent, *bases)
    parsed = _parsed(text) if _may_be(path, text, ".py") else None
    found = _imports(around, path, parsed) if parsed else iter(())
    if parsed is None and _may_be(path, text, *SHELL):
        found = _words(around, text)
    yield from (other for other in found if other.is_relative_to(tree))


def _may_be(path: Path, text: str, *suffixes: str) -> bool:
    """Whether a script is of a language, by its suffix or else by its first line."""
    if path.suffix or not text.startswith("#!"):
        return path.suffix in ("", *suffixes)
    program = re.split(r"[\s/]+", text.partition("\n")[0])
    known = ("python", "pypy") if ".py" in suffixes else ("sh", "bash", "dash", "zsh", "ksh")
    return any(re.fullmatch(rf"(?:{'|'.join(known)})[\d.]*", word) for word in program)


def _words(around: tuple[Path, ...], text: str) -> Iterator[Path]:
    for line in text.splitlines():
        # most words of a script are no files, and a file may come to be called `done`
        likely = (word for word in words(line) if "." in word)
        # a folder that a script mentions may be one that it makes, or fills
        yield from (path for path in looked_up(around, likely) if path.is_file())
        yield from (path for name in modules(line) for path in _modules(around, name))


def _parsed(text: str) -> ast.Module | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _imports(around: tuple[Path, ...], path: Path, parsed: ast.Module) -> Iterator[Path]:
    """The modules that a Python file imports, as far as they are files near it."""
    for node in ast.walk(parsed):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _modules(around, alias.name)
        elif isinstance(node, ast.ImportFrom):
            # `from . import x` looks one folder up for each dot after the first
            places = (path.parents[min(node.level, len(path.parents)) - 1],)
            start = f"{node.module}." if node.module else ""
            for alias in node.names:
                yield from _modules(places if node.level else around, start + alias.name)


def _modules(places: Iterable[Path], name: str) -> Iterator[Path]:
    """The file of a module and of each package it is in; the last part may be a function."""
    parts = name.split(".")
    for place in places:
        for size in range(1, len(parts) + 1):
            stem = place.joinpath(*parts[:size])
            for path in (stem.with_name(f"{stem.name}.py"), stem / "__init__.py"):
                if path.is_file():
                    yield path.resolve()


def _name(path: Path, tree: Path) -> str:
    """As a person calls it; the name of a file may be bytes that are no text."""
    shown = path.relative_to(tree).as_posix() if path.is_relative_to(tree) else str(path)
    return shown.encode("utf-8", "backslashreplace").decode()
