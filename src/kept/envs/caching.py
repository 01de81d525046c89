"""Folders that outlive runs: what an environment builds once for a case, such as its packages.

They lie in the user's cache folder, below `envs/`.
"""

import asyncio
import fcntl
import shutil
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from kept.core.artifact import is_safe_path
from kept.settings import cache_home

COMPLETE = ".complete"
"""The file that says that a folder was built to its end."""


async def cached_folder(env: str, name: str, build: Callable[[Path], Awaitable[None]]) -> Path:
    """The folder of an environment by a name; built in its place where it is not there yet.

    Several processes may ask for one folder: one builds it, the others wait. A folder whose
    building was cut off, or raised, is built anew.
    """
    if not is_safe_path(name):
        raise ValueError(f"`{name}` is no name of a folder")
    folder = cache_home() / "envs" / env / name
    if (folder / COMPLETE).exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    held = _locked(folder.with_name(f"{folder.name}.lock"))
    await asyncio.to_thread(held.__enter__)
    try:
        if not (folder / COMPLETE).exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            await build(folder)
            (folder / COMPLETE).touch()
    finally:
        held.__exit__(None, None, None)
    return folder


@contextmanager
def _locked(path: Path) -> Generator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
