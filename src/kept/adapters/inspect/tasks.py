"""Inspect tasks: samples as cases, and task construction from candidate texts.

A task is built by a function, or from a file in a folder.
"""

import contextlib
import hashlib
import importlib.util
import inspect
import itertools
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, cast

from kept.adapters.arguments import Data
from kept.adapters.inspect.evaluation import Made
from kept.core.case import Case, fault_in, split_cases
from kept.core.text import count
from kept.errors import KeptError, SetupError
from kept.recipes.function.compile import artifact_texts, parse_ratio, source_of, warn_of_overlaps

SHOWN = ("input", "choices", "target", "metadata", "sandbox", "files", "setup")
"""Fields by which two samples are compared."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Selection of samples from a dataset, as in `inspect_ai.eval`."""

    limit: int | tuple[int, int] | None = None
    ids: tuple[str, ...] | None = None
    """Sample ids, or patterns of them."""

    def of(self, rows: Sequence[tuple[str, Any]]) -> Sequence[tuple[str, Any]]:
        """Rows that the selection includes."""
        if self.ids is not None:
            return [row for row in rows if any(fnmatchcase(row[0], id_) for id_ in self.ids)]
        if isinstance(self.limit, tuple):
            return rows[self.limit[0] : self.limit[1]]
        return rows[: self.limit]


@dataclass(frozen=True, slots=True)
class Samples:
    """Samples of a task by their ids."""

    by_id: Mapping[str, Any]
    choice: Choice

    @staticmethod
    def read(task: Any, choice: Choice) -> "Samples":  # noqa: ANN401 # a Task
        """Read the samples of a task; a sample without an id gets its position, as in Inspect."""
        if not hasattr(task, "dataset") or not hasattr(task, "scorer"):
            hint = "return inspect_ai.Task(…)"
            raise SetupError(f"the task function returned {task!r:.80}", hint=hint)
        problems: list[str] = []
        if task.scorer is None:
            problems.append("the task has no scorer: nothing could be compared")
        if task.sample_source is not None:
            problems.append("the samples of the task are made while it runs: give it a dataset")
        rows = [
            (str(sample.id if sample.id is not None else number), sample)
            for number, sample in enumerate(task.dataset, 1)
        ]
        twice = [id_ for id_, times in Counter(id_ for id_, _ in rows).items() if times > 1]
        if twice:
            problems.append(f"sample ids stand more than once: {', '.join(twice[:5])}")
        rows = choice.of(rows)
        if not rows and task.sample_source is None:
            problems.append("the task has no samples")
        if problems:
            raise SetupError("; ".join(problems))
        return Samples(dict(rows), choice)

    def copy(self, case: str) -> Any:  # noqa: ANN401 # a Sample
        """Deep copy of a sample, safe to change."""
        sample = self.by_id[case]
        id_ = sample.id if sample.id is not None else int(case)
        return sample.model_copy(deep=True, update={"id": id_})

    def data(self, split: str, seed: int) -> Data:
        """Samples as cases, split into train, holdout and test."""
        cases = [Case(id_, _plain(sample)) for id_, sample in self.by_id.items()]
        shared = split_cases(cases, parse_ratio(split), seed)
        if fault := fault_in(shared):
            message = f"{fault} (split {split} of {count(len(cases), 'sample')})"
            raise SetupError(message, hint="give more samples, or holdout a larger share")
        warn_of_overlaps(shared)
        return Data(shared, {})

    def other(self, theirs: "Samples") -> "Samples":
        """Samples of another task, sharing equal ones with ours to save memory."""
        mine = self.by_id
        rows = {
            id_: mine[id_] if id_ in mine and mine[id_] == sample else sample
            for id_, sample in theirs.by_id.items()
        }
        return Samples(rows, self.choice)

    def same(self, other: "Samples") -> bool:
        """True if both have the same samples under the same ids."""
        mine, theirs = self.by_id, other.by_id
        return mine.keys() == theirs.keys() and all(
            _plain(sample) == _plain(theirs[id_]) for id_, sample in mine.items()
        )


def choice_of(terms: Mapping[str, Any]) -> Choice:
    """Selection of samples from the arguments of a call."""
    limit, ids = terms.get("limit"), terms.get("sample_id")
    if limit is not None and ids is not None:
        raise SetupError("both `limit` and `sample_id` are given", hint="give one of them")
    if ids is None:
        return Choice(cast("int | None", limit))
    many = cast("Iterable[object]", ids) if isinstance(ids, list | tuple) else [ids]
    return Choice(ids=tuple(str(one) for one in many))


def _plain(sample: Any) -> dict[str, Any]:  # noqa: ANN401 # a Sample
    told = sample.model_dump(mode="json", include=set(SHOWN), exclude_none=True, fallback=str)
    if isinstance(told["input"], list):
        # message ids are generated anew each time a sample is built
        rows = cast("list[dict[str, Any]]", told["input"])
        told["input"] = [{k: v for k, v in row.items() if k != "id"} for row in rows]
    return told


MOST = 64 << 20
"""Maximum bytes of a task folder; it is copied for every candidate."""

PASSED_OVER = ("__pycache__", "node_modules", "logs")


class Changed(KeptError):
    """A candidate that changed its own test data."""


class Maker(Protocol):
    """Builds the task of a candidate."""

    texts: dict[str, str]
    """Texts of the seed."""
    source: str
    """Fingerprint of the task, so that resume detects changes."""

    def make(self, texts: Mapping[str, str]) -> tuple[Any, Callable[[], None]]:
        """The task, and a function that releases its resources."""
        ...


class Factory:
    """Task function whose parameters are the texts."""

    def __init__(
        self, function: Callable[..., Any], artifact: object, args: Mapping[str, Any]
    ) -> None:
        self._function = function
        self._args = dict(args)
        self.texts = _texts(function, artifact, args)
        self.source = source_of(function) + repr(sorted(self._args.items()))

    def make(self, texts: Mapping[str, str]) -> tuple[Any, Callable[[], None]]:
        """Call the function with the texts."""
        return self._function(**texts, **self._args), lambda: None


class TaskFile:
    """Task file `tasks.py@name`, with texts in files below its folder."""

    def __init__(self, spec: str, patterns: Sequence[str], args: Mapping[str, Any]) -> None:
        named = "@" in Path(spec).name
        path, _, self._name = spec.rpartition("@") if named else (spec, "", "")
        self._path = Path(path).resolve()
        self._args = dict(args)
        self._numbers = itertools.count(1)
        if not self._path.is_file():
            hint = 'give "tasks.py@name", or a function that returns a Task'
            raise SetupError(f"there is no file {path}", hint=hint)
        self._tree = self._path.parent
        self.texts = {
            file.relative_to(self._tree).as_posix(): artifact_texts(file)[file.name]
            for file in self._found(patterns)
        }
        size = sum(file.stat().st_size for file in _files(self._tree))
        if size > MOST:
            hint = "put the task into a folder of its own: it is copied for every candidate"
            raise SetupError(f"{self._tree} holds {size >> 20} MB", hint=hint)
        rest = {f.relative_to(self._tree).as_posix(): f.read_bytes() for f in _files(self._tree)}
        told = [
            f"{name} {hashlib.sha256(data).hexdigest()}"
            for name, data in rest.items()
            if name not in self.texts
        ]
        called = f"{self._path.name}@{self._name} {sorted(self._args.items())!r}"
        self.source = "\n".join([called, *told])

    def make(self, texts: Mapping[str, str]) -> tuple[Any, Callable[[], None]]:
        """Copy the folder, write the texts into it, and build the task there."""
        folder = Path(tempfile.mkdtemp(prefix="kept-inspect-"))

        def close() -> None:
            shutil.rmtree(folder, ignore_errors=True)

        try:
            for file in _files(self._tree):
                to = folder / file.relative_to(self._tree)
                to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(file, to)
            for name, text in texts.items():
                with (folder / name).open("w", encoding="utf-8", newline="") as file:
                    file.write(text)
            name = f"kept_inspect_{folder.name.replace('-', '_')}_{next(self._numbers)}"
            with _inside(folder):
                module = _imported(folder / self._path.name, name)
                return self._chosen(module)(**self._args), close
        except BaseException:
            close()
            raise

    def _found(self, patterns: Sequence[str]) -> list[Path]:
        found = dict.fromkeys(
            file for one in patterns for file in self._matching(one) if file.is_file()
        )
        if not found:
            named = ", ".join(patterns) or "nothing"
            hint = f"give patterns of files below {self._tree}"
            raise SetupError(f"there is no file `{named}` to improve", hint=hint)
        return list(found)

    def _matching(self, pattern: str) -> list[Path]:
        """Files that match a pattern below the task folder, or a single file by its path."""
        path = Path(pattern).absolute()
        if path.is_file() and path.is_relative_to(self._tree):
            return [path]
        return [] if Path(pattern).is_absolute() else sorted(self._tree.glob(pattern))

    # only tasks defined in this file count, not those that it imports
    def _chosen(self, module: ModuleType) -> Callable[..., Any]:
        known = {
            name: value
            for name, value in vars(module).items()
            if hasattr(value, "__registry_info__")
            and value.__registry_info__.type == "task"
            and value.__module__ == module.__name__
        }
        if self._name in known:
            return known[self._name]
        if not self._name and len(known) == 1:
            return next(iter(known.values()))
        which = f"`{self._name}`" if self._name else "one task alone"
        there = ", ".join(known) or "no function under @task"
        hint = f"write {self._path.name}@NAME; there is {there}"
        raise SetupError(f"{self._path.name} does not have {which}", hint=hint)


def made(maker: Maker, samples: Samples, texts: Mapping[str, str]) -> Made:
    """Task of a candidate, whose samples must match the cases of the seed's task."""
    task, close = maker.make(texts)
    try:
        mine = samples.other(Samples.read(task, samples.choice))
    except SetupError as error:
        close()
        raise Changed(f"the task of this candidate is none: {error.message}") from error

    def one(case: str) -> Any:  # noqa: ANN401 # a Sample
        if case not in mine.by_id:
            raise Changed(f"the candidate's dataset has no sample `{case}`")
        if mine.by_id[case].target != samples.by_id[case].target:
            raise Changed(f"the candidate changes the target of sample `{case}`")
        return mine.copy(case)

    return Made(task, one, close)


def _texts(
    function: Callable[..., Any], artifact: object, args: Mapping[str, Any]
) -> dict[str, str]:
    """Texts of an artifact by parameter name; a single text goes to the first parameter."""
    parameters = inspect.signature(function).parameters
    free = [name for name in parameters if name not in args]
    if not isinstance(artifact, str | Path | Mapping):
        hint = f"pass a text, or texts by the names of parameters: {', '.join(free)}"
        raise SetupError(f"`artifact` is {artifact!r:.60}", hint=hint)
    texts = artifact_texts(cast("str | Path | Mapping[str, str]", artifact))
    if not isinstance(artifact, Mapping):
        if not free:
            hint = "write `def task(prompt): …`, and use the prompt in its solver"
            raise SetupError("the task function takes no text", hint=hint)
        texts = {free[0]: next(iter(texts.values()))}
    try:
        inspect.signature(function).bind(**{**texts, **args})
    except TypeError as error:
        hint = f"its parameters are {', '.join(parameters) or 'none'}"
        raise SetupError(f"the task function cannot be called so: {error}", hint=hint) from error
    return texts


def _files(tree: Path) -> Iterator[Path]:
    """Files to copy: no hidden files, links, caches or logs."""
    for path in sorted(tree.iterdir()):
        if path.name.startswith(".") or path.name in PASSED_OVER or path.is_symlink():
            continue
        if path.is_dir():
            yield from _files(path)
        elif path.is_file():
            yield path


@contextmanager
def _inside(folder: Path) -> Generator[None]:
    """Load a file as Inspect does: with its folder as working directory and on `sys.path`.

    Modules imported from the folder are removed afterwards, or the next candidate would get them.
    """
    before = set(sys.modules)
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        with contextlib.chdir(folder):
            yield
    finally:
        sys.path.remove(str(folder))
        for name in set(sys.modules) - before:
            file = getattr(sys.modules[name], "__file__", None)
            if file and Path(file).is_relative_to(folder):
                del sys.modules[name]


def _imported(path: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # registered while it loads: code that looks up the module of a function must find it
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
