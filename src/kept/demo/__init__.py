"""The task that `kept demo` runs: real commands, real files, no model and no network."""

import shutil
from pathlib import Path

from kept.errors import SetupError

_TASK = Path(__file__).parent / "task"

REVIEWS = Path(__file__).parent / "reviews"
"""A task for the model that runs in this process: label short reviews."""


def copy_demo(folder: Path) -> Path:
    """Copy the demo's task into a folder, which is made; the path of its task.yaml."""
    if folder.exists() and any(folder.iterdir()):
        raise SetupError(f"{folder} is not empty", hint="name a folder that is, or a new one")
    ignore = shutil.ignore_patterns("__pycache__")
    try:
        shutil.copytree(_TASK, folder, ignore=ignore, dirs_exist_ok=True)
    except OSError as error:
        raise SetupError(f"cannot write the demo to {folder}: {error}") from error
    return folder / "task.yaml"
