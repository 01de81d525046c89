"""From what somebody has to a task: a folder that `kept check` finds in order and `optimize` runs.

What is read is never changed; the folder holds copies.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kept.core.artifact import is_safe_path
from kept.errors import SetupError


@dataclass(frozen=True, slots=True)
class Draft:
    """The files of a task that is yet to be written."""

    files: Mapping[str, str]
    """Texts by path, `task.yaml` among them."""
    notes: tuple[str, ...] = ()
    """What somebody should know before a run."""
    facts: Mapping[str, object] = field(default_factory=dict[str, object])


def write(files: Mapping[str, str], folder: Path) -> list[Path]:
    """Write texts into a folder, which is made; refuses to overwrite any file, or to leave it."""
    for name in files:
        inside = is_safe_path(name) and (folder / name).resolve().is_relative_to(folder.resolve())
        if not inside:
            raise SetupError(f"`{name}` is not a path below {folder}")
    there = [name for name in files if os.path.lexists(folder / name)]
    if there:
        raise SetupError(
            f"{folder} already has {', '.join(there)}", hint="name a folder that is new or empty"
        )
    try:
        for name, text in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            with (folder / name).open("x", encoding="utf-8", newline="") as file:
                file.write(text)
    except OSError as error:
        raise SetupError(f"cannot write to {folder}: {error}") from error
    return [folder / name for name in files]
