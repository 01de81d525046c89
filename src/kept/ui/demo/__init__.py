"""The tasks that `kept demo` runs: `reviews` asks a real model, `redact` needs none."""

import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from kept.errors import SetupError
from kept.settings import install_command

DemoName = Literal["reviews", "redact"]

_FOLDER = Path(__file__).parent

REVIEWS = _FOLDER / "reviews"
"""A task for the model that runs on this machine: label short reviews."""

MODEL = "smollm2"
"""The model that `reviews` is about."""


def copy_demo(name: DemoName, folder: Path) -> Path:
    """Copy the task of a demo into a folder, which is made; the path of its task.yaml."""
    if folder.exists() and any(folder.iterdir()):
        raise SetupError(f"{folder} is not empty", hint="name a folder that is, or a new one")
    ignore = shutil.ignore_patterns("__pycache__")
    try:
        shutil.copytree(_FOLDER / name, folder, ignore=ignore, dirs_exist_ok=True)
    except OSError as error:
        raise SetupError(f"cannot write the demo to {folder}: {error}") from error
    return folder / "task.yaml"


def check_engine() -> None:
    """Raise a `SetupError` where nothing here can run the model of `reviews`."""
    if find_spec("xllamacpp") is None:
        raise SetupError(
            "the model of the demo needs the package `xllamacpp`, which is not installed",
            hint=install_command("local"),
        )
