"""The tasks that `kept init` writes: each runs at once, and is meant to be changed."""

import shutil
from pathlib import Path

from kept.errors import SetupError

_HERE = Path(__file__).parent
KINDS = ("prompt", "skill", "config", "code")
"""What a task may be about; the first is the default."""


def scaffold(kind: str, folder: Path) -> list[Path]:
    """Write the files of a task into a folder, which is made; refuses to overwrite any."""
    source = _HERE / kind
    files = [
        path
        for path in sorted(source.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    ]
    names = [path.relative_to(source) for path in files]
    there = [str(name) for name in names if (folder / name).exists()]
    if there:
        raise SetupError(
            f"{folder} already has {', '.join(there)}", hint="name a folder that is new or empty"
        )
    try:
        for name in names:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source / name, folder / name)
    except OSError as error:
        raise SetupError(f"cannot write to {folder}: {error}") from error
    return [folder / name for name in names]
