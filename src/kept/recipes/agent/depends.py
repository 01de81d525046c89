"""What the measure of an agent depends on besides its texts and cases, by hashes."""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from kept.recipes.hashing import digest, hash_of
from kept.recipes.prompting import metric_prompt_files
from kept.spec.agent.metrics import CodeMetricSpec
from kept.spec.agent.read import ReadAgent
from kept.spec.agent.tools import (
    FunctionToolSpec,
    HierarchicalDocumentToolSpec,
    VectorstoreToolSpec,
)

MAX_FILES = 2000
"""Of a source; what is more is known by its names and sizes alone."""


def depends_on(read: ReadAgent) -> dict[str, str]:
    """A hash of each file that scores depend on, by the name that a person knows."""
    folder = read.place.folder
    found = {"config": hash_of(repr(read.place.config.data))}
    for name in dict.fromkeys(_named(read)):
        path = folder / name
        found[f"`{name}`"] = _tree(path) if path.is_dir() else digest(path)
    return found


def _named(read: ReadAgent) -> Iterator[str]:
    for tool in read.agent.spec.tools:
        match tool:
            case FunctionToolSpec():
                yield tool.file
            case VectorstoreToolSpec() | HierarchicalDocumentToolSpec():
                yield tool.source
            case _:
                pass
    for metric in read.agent.spec.metrics:
        if isinstance(metric, CodeMetricSpec):
            yield metric.grader.partition(":")[0].replace(".", "/") + ".py"
    yield from metric_prompt_files(read.source).values()
    for case in read.cases:
        for turn in case.exchanges:
            yield from (file.path for file in turn.files if file.path)


def _tree(folder: Path) -> str:
    """A hash of all files of a folder."""
    whole = hashlib.sha256()
    paths = sorted(Path(inner, name) for inner, _, names in os.walk(folder) for name in names)
    for path in paths[:MAX_FILES]:
        whole.update(f"{path.relative_to(folder)}\0{digest(path)}\0".encode("utf-8", "replace"))
    return f"{len(paths)} files {whole.hexdigest()[:16]}"
