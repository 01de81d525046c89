"""Input files of a task: reading, companion files, outputs, and hashes for resume.

All problems are reported at once, so one bad part of a spec does not hide others.

The hashes cover all that verdicts depend on, so that a resume notices changes. They include the
files that runner and scorer name, and files these refer to. References are the imports of a
Python file and the words of a shell script; files without a suffix are recognized by their first
line. Excluded are files that a run may change, and those whose meaning is already compared.

Companion files have fixed names in the task's folder: `prompt.md` and `rubric.md` are read as
guidance. Constraints and tie-breakers on `usd`, `seconds` or `tokens` are refused for a model
with cached replies: a cached reply has none.
"""

import ast
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kept.core.case import Cases, implicit_cases
from kept.core.objective import OWN
from kept.core.parsing import parse_python
from kept.evaluators.runners.registry import RUNNERS, model_asked
from kept.evaluators.scorers.registry import SCORERS
from kept.models.roles import is_kept
from kept.recipes.task.cases import read_cases
from kept.recipes.task.components import (
    Proposing,
    check_proposers,
    check_runner,
    check_scorer,
    read_proposers,
)
from kept.recipes.task.guards import check_guards, check_protected
from kept.recipes.task.make_coding_agent import digest, file_hashes, hash_of
from kept.recipes.task.models import check_models, take_seed_names
from kept.recipes.task.prompts import check_prompts_folder, take_prompts
from kept.recipes.task.sandbox import check_sandbox
from kept.recipes.task.spec import ArtifactsSpec, LoggingSpec, MutationSpec, TaskSpec
from kept.spec.command_lines import looked_up, modules, named, words
from kept.spec.components import joined
from kept.spec.paths import NEVER, UNLESS_NAMED, read_artifacts, read_text
from kept.spec.source import Source
from kept.spec.validate import section, validate
from kept.store.candidate_files import link_in
from kept.store.exports import is_results_file

MAX_FILES = 1000
"""Most files of a folder; a folder with more holds data and is left out."""

MAX_SCRIPT = 1024 * 1024
"""Largest size in bytes of a script that is searched for names of other files."""

MAX_NAMED = 5
"""Most files that a warning names."""

SHELL = (".sh", ".bash")


def measure_files(source: Source, task: TaskSpec, artifacts: Collection[str]) -> dict[str, str]:
    """Return a hash of each file that scores depend on, by its name in the task's folder."""
    tree = source.folder.resolve()
    apart = _apart(source, task, artifacts)
    needs = joined((RUNNERS.needs(task.runner), SCORERS.needs(task.scorer)))
    found = sorted(_made_of(tree, task, needs.commands))
    files = (path for path in found if not any(path.is_relative_to(other) for other in apart))
    return {f"`{_name(path, tree)}`": digest(path) for path in files}


def exposed(
    source: Source, task: TaskSpec, artifacts: Collection[str], hidden: Collection[Path]
) -> tuple[str, ...]:
    """Warn of files that only the scorer uses, but that the runner can read."""
    tree = source.folder.resolve()
    scorer = _made_of(tree, task, SCORERS.needs(task.scorer).commands)
    # files that the runner itself needs cannot be hidden from it
    shared = _made_of(tree, task, RUNNERS.needs(task.runner).commands)
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
    """Return the files that commands name, and the files that these refer to."""
    places = (*RUNNERS.needs(task.runner).folders, *SCORERS.needs(task.scorer).folders)
    bases = tuple(dict.fromkeys((tree, *((tree / place).resolve() for place in places))))
    packages = {path for line in lines for name in modules(line) for path in _modules(bases, name)}
    return _reached(tree, bases, named(bases, lines) | packages)


def _apart(source: Source, task: TaskSpec, artifacts: Collection[str]) -> list[Path]:
    """Return paths compared by meaning instead of hash, and paths that a run may write to."""
    names = [*artifacts, *task.sandbox.writable, source.path.name]
    names += [task.cases.file] if task.cases else []
    names += [name for name in (task.logging.results_file, task.logging.candidate_dir) if name]
    return [(source.folder / name).resolve() for name in names]


def _reached(tree: Path, bases: tuple[Path, ...], first: Iterable[Path]) -> set[Path]:
    """Return files, the files in folders, and all files that these refer to."""
    reached: set[Path] = set()
    waiting = list(first)
    while waiting:
        path = waiting.pop()
        if path in reached:
            continue
        inside = path.is_relative_to(tree)
        if path.is_dir():
            # `.` and folders elsewhere are where a command works, not what it is made of
            waiting += _files(path) if inside and path != tree else ()
        elif path.is_file() and (inside or _is_written(path)):
            reached.add(path)
            waiting += _leads_to(tree, bases, path)
    return reached


def _files(folder: Path) -> list[Path]:
    """Return the files of a folder; none if there are so many that they must be data."""
    found: list[Path] = []
    for inner, folders, names in os.walk(folder):
        folders[:] = set(folders) - NEVER - UNLESS_NAMED
        found.extend(Path(inner, name) for name in names)
        if len(found) > MAX_FILES:
            return []
    return found


def _is_written(path: Path) -> bool:
    """True for a text file outside system folders; a binary file belongs to the system."""
    if any(path.is_relative_to(place) for place in ("/proc", "/sys", "/dev", "/run")):
        return False
    try:
        with path.open("rb") as file:
            return b"\0" not in file.read(4096)
    except OSError:
        return False


def _leads_to(tree: Path, bases: tuple[Path, ...], path: Path) -> Iterator[Path]:
    """Yield the files of the task that a script names."""
    if path.suffix not in ("", ".py", *SHELL) or path.stat().st_size > MAX_SCRIPT:
        return
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    # Python looks for imports in the folder of the script first
    around = (path.parent, *bases)
    parsed = _parsed(text) if _may_be(path, text, ".py") else None
    found = _imports(around, path, parsed) if parsed else iter(())
    if parsed is None and _may_be(path, text, *SHELL):
        found = _words(around, text)
    yield from (other for other in found if other.is_relative_to(tree))


def _may_be(path: Path, text: str, *suffixes: str) -> bool:
    """True if a script is of a language, by its suffix, or else by its first line."""
    if path.suffix or not text.startswith("#!"):
        return path.suffix in ("", *suffixes)
    program = re.split(r"[\s/]+", text.partition("\n")[0])
    known = ("python", "pypy") if ".py" in suffixes else ("sh", "bash", "dash", "zsh", "ksh")
    return any(re.fullmatch(rf"(?:{'|'.join(known)})[\d.]*", word) for word in program)


def _words(around: tuple[Path, ...], text: str) -> Iterator[Path]:
    for line in text.splitlines():
        # most words of a script are not files, and a word like `done` may match one by chance
        likely = (word for word in words(line) if "." in word)
        # a folder that a script mentions may be its output
        yield from (path for path in looked_up(around, likely) if path.is_file())
        yield from (path for name in modules(line) for path in _modules(around, name))


def _parsed(text: str) -> ast.Module | None:
    try:
        return parse_python(text)
    except (SyntaxError, ValueError):
        return None


def _imports(around: tuple[Path, ...], path: Path, parsed: ast.Module) -> Iterator[Path]:
    """Yield the modules that a Python file imports, if they are files near it."""
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
    """Yield the files of a module and of its packages; the last part may be a function."""
    parts = name.split(".")
    for place in places:
        # `a.b.c` may be a.py, a/__init__.py, a/b.py, …
        for size in range(1, len(parts) + 1):
            stem = place.joinpath(*parts[:size])
            for path in (stem.with_name(f"{stem.name}.py"), stem / "__init__.py"):
                if path.is_file():
                    yield path.resolve()


def _name(path: Path, tree: Path) -> str:
    """Return the name for display; a file name may have bytes that are not text."""
    shown = path.relative_to(tree).as_posix() if path.is_relative_to(tree) else str(path)
    return shown.encode("utf-8", "backslashreplace").decode()


def check_own_measures(source: Source, task: TaskSpec) -> None:
    """Report a cached model if `usd`, `seconds` or `tokens` decide: cached replies have none."""
    breakers = [one.lower or one.higher for one in task.policy.tie_breakers]
    named = [name for name in OWN if name in {*breakers, *(one.metric for one in task.constraints)}]
    asked = model_asked(RUNNERS.needs(task.runner))
    if not named or asked is None:
        return
    config = asked.config(task.models, source.folder)
    if config is not None and is_kept("target", config):
        names = ", ".join(f"`{name}`" for name in named)
        message = f"{names} of a reply that is kept for other runs would be nothing"
        source.report(("models", "target"), message, "set `cache: false`")


GUIDANCE = {"instruction": "prompt.md", "rubric": "rubric.md"}
"""File in the task's folder for each kind of guidance, by its name in a brief."""


def read_guidance(source: Source, artifacts: Collection[str]) -> dict[str, str]:
    """Read the guidance for proposers and judges in the task's folder.

    A file that is an artifact is not guidance: the run improves it.
    """
    found: dict[str, str] = {}
    for name, file in GUIDANCE.items():
        path = source.folder / file
        if path.is_file() and file not in artifacts:
            text = read_text(source, (), path)
            if text is not None:
                found[name] = text
    return found


def check_outputs(source: Source, artifacts: Collection[str]) -> None:
    """Report outputs that would overwrite files that Kept did not write."""
    # read one by one, so that a wrong key does not prevent the check of the other
    first = section(source, ("logging",), LoggingSpec, unread=("candidate_dir",))
    second = section(source, ("logging",), LoggingSpec, unread=("results_file",))
    results = first.results_file if first else None
    candidates = second.candidate_dir if second else None
    if results is not None:
        loc, path = ("logging", "results_file"), source.folder / results
        _check_place(source, loc, path)
        if path.is_dir():
            source.report(
                loc, f"`{results}` is a folder", f"name a file, as in `{results}/results.jsonl`"
            )
        elif results in artifacts or (path.exists() and not is_results_file(path)):
            hint = "name another file: this one would be written to"
            source.report(loc, f"`{results}` is there and holds something else", hint)
    if candidates is not None:
        loc, path = ("logging", "candidate_dir"), source.folder / candidates
        _check_place(source, loc, path)
        if path.exists() and not path.is_dir():
            source.report(loc, f"`{candidates}` is a file, where a folder was expected")
        inside = [name for name in artifacts if name.startswith(f"{candidates}/")]
        if inside:
            source.report(loc, f"`{candidates}` holds the artifact `{inside[0]}`")


def _check_place(source: Source, loc: tuple[str, str], path: Path) -> None:
    if (link := link_in(path, source.folder)) is not None:
        hint = "name a place that no link leads to: nothing is written through links"
        source.report(loc, f"`{link.relative_to(source.folder)}` is a link", hint)


@dataclass(frozen=True, slots=True)
class TaskFiles:
    """Contents of the files of a task."""

    texts: Mapping[str, str]
    editable: Mapping[str, str]
    guidance: Mapping[str, str]
    proposing: Proposing
    cases: Cases
    given: Mapping[str, tuple[str, ...]]
    """Files of the task's folder that an agent gets, by case."""


@dataclass(frozen=True, slots=True)
class ReadTask:
    """A valid task, with the contents of its files."""

    source: Source
    task: TaskSpec
    files: TaskFiles


def read_task(source: Source, *, proposes: bool = True) -> ReadTask:
    """Read a task from its source; raises `SpecError` with all its problems."""
    take_seed_names(source)
    take_prompts(source)
    task = validate(source, TaskSpec)
    files = read_files(source, proposes)
    if task is not None:
        check_own_measures(source, task)
    source.check()
    assert task is not None, "a task without problems is a task"
    return ReadTask(source, task, files)


def read_files(source: Source, proposes: bool) -> TaskFiles:
    """Read every file that a valid part of the spec names."""
    limits = ("max_files_per_iteration",)
    artifacts = section(source, ("artifacts",), ArtifactsSpec, unread=limits)
    texts = read_artifacts(source, artifacts.include, artifacts.exclude) if artifacts else {}
    mutation = section(source, ("mutation",), MutationSpec) or MutationSpec()
    types = mutation.allowed_file_types
    editable = {name: texts[name] for name in texts if not types or name.endswith(types)}
    if texts and not editable:
        message = "leaves no artifact to edit"
        source.report(("mutation", "allowed_file_types"), message, f"there are {', '.join(texts)}")
    check_protected(source, mutation.protect, editable)
    check_outputs(source, texts)
    check_prompts_folder(source)
    if proposes:
        check_proposers(source)
    found = read_cases(source)
    check_scorer(source, texts, found)
    check_guards(source, texts)
    check_sandbox(source)
    check_models(source)
    given = check_runner(source, texts, found)
    guidance = read_guidance(source, texts)
    proposing = read_proposers(source, editable, found)
    return TaskFiles(texts, editable, guidance, proposing, found or implicit_cases(), given)


_NO_MEANING: Mapping[str, Any] = {
    **dict.fromkeys(("id", "description", "budget", "logging", "workers", "width"), True),
    **dict.fromkeys(("gate", "race"), True),
    "policy": {"on_failure", "keep_if"},
}
"""Keys that a resume may change: they alter how long or how fast a run goes on, but no verdict.
The gate is compared separately, because it follows from more than its key."""


def inputs_of(source: Source, task: TaskSpec, files: TaskFiles, gate: str) -> dict[str, str]:
    """Return a hash of each input that a run depends on, by a name that the user knows."""
    dump = task.model_dump(exclude=dict(_NO_MEANING), exclude_defaults=True)
    # an explicit default must not change the hash
    meaning = {name: value for name, value in dump.items() if value != {}}
    race = task.race
    raced: list[object] = ["balanced" if race is None else race.preset]
    if race is not None and race.said:
        # unset keys are left out, so that a new key does not change the hash of old runs
        raced.append(race.said)
    return {
        "spec": hash_of(meaning),
        "gate": hash_of([gate, *(raced if gate == "race" else (None,))]),
        **_companions(files),
        **measure_files(source, task, files.texts),
        **file_hashes(source, files.given, files.texts),
    }


def _companions(files: TaskFiles) -> dict[str, str]:
    """Return hashes of the files that are read with the task, by names that the user knows."""
    found: dict[str, object] = {GUIDANCE[name]: text for name, text in files.guidance.items()}
    for texts in files.proposing.found:
        found |= texts
    return {f"`{name}`": hash_of(text) for name, text in found.items()}
