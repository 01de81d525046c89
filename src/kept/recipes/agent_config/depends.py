"""What the measure of an agent depends on besides its texts and cases, by hashes."""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from kept.core.case import SPLITS
from kept.recipes.agent_config.measuring import all_metrics
from kept.recipes.agent_config.spec.case_files import FILE, OPTIMIZER
from kept.recipes.agent_config.spec.config import NAMES as CONFIGS
from kept.recipes.agent_config.spec.metrics import CodeMetricSpec
from kept.recipes.agent_config.spec.read import ReadAgent
from kept.recipes.agent_config.spec.tools import (
    FunctionToolSpec,
    HierarchicalDocumentToolSpec,
    McpToolSpec,
    VectorstoreToolSpec,
)
from kept.recipes.task.hashing import digest, hash_of
from kept.recipes.task.prompts import metric_prompt_files
from kept.spec.load import said

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


def named_files(read: ReadAgent) -> tuple[str, ...]:
    """Every file and folder that an agent needs beside its agent.yaml, by relative paths."""
    folder = read.place.folder
    found = [*_named(read), *(name for name in read.agent.texts if name != read.place.path.name)]
    found += CONFIGS
    for key in (FILE, *((*OPTIMIZER, f"{split}_cases_file") for split in SPLITS)):
        name = said(read.source, key)
        found += [name] if isinstance(name, str) else []
    for tool in read.agent.spec.tools:
        if isinstance(tool, McpToolSpec):
            # a server runs in the agent's folder, and may be given a path there
            found += [tool.env_file] if tool.env_file else []
            found += [arg for arg in tool.args if (folder / arg).exists()]
    for _, metric in all_metrics(read):
        if isinstance(metric, CodeMetricSpec):
            top = metric.grader.partition(":")[0].partition(".")[0]
            found += [top, f"{top}.py"]
    return tuple(dict.fromkeys(found))


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
