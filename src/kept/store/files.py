"""A candidate as files below a folder. Writes nothing outside it."""

from collections.abc import Mapping
from pathlib import Path

from kept.core.artifact import Candidate, is_safe_path
from kept.errors import RunError


def write_files(folder: Path, candidate: Candidate, modes: Mapping[str, int] | None = None) -> None:
    """A candidate's texts as files below a folder, with their mode bits where they have some."""
    # bytes, so that line endings stay as they are
    write_below(
        folder,
        {path: text.encode("utf-8", "surrogateescape") for path, text in candidate.texts.items()},
    )
    for path, mode in (modes or {}).items():
        if path in candidate.texts:
            (folder / path).chmod(mode)


def write_below(folder: Path, files: Mapping[str, bytes]) -> None:
    """Files below a folder, which is made; refuses a path that leaves it."""
    folder.mkdir(parents=True, exist_ok=True)
    for path, data in files.items():
        if not is_safe_path(path):
            raise RunError(f"`{path}` is not a path below the folder it is to be written to")
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
