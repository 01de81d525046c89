"""Folders that outlive runs: what an environment builds once for a case, such as its packages.

They lie in the user's cache folder, below `envs/`.
"""

import asyncio
import fcntl
import shutil
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from kept.core.artifact import is_safe_path
from kept.settings import cache_home

POLL_SECONDS = 0.1
"""Between two looks at a lock that another holds."""

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
    async with _locked(folder.with_name(f"{folder.name}.lock")):
        if not (folder / COMPLETE).exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            await build(folder)
            (folder / COMPLETE).touch()
    return folder


@asynccontextmanager
async def _locked(path: Path) -> AsyncGenerator[None]:
    """Hold a lock; who waits takes no thread, for the one who builds may need them all."""
    with path.open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await asyncio.sleep(POLL_SECONDS)
        yield
