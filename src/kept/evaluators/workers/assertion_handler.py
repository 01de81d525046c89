"""Worker for Python assertions, which runs what a user wrote (`sandbox/worker_main.py`).

An exception is an answer: an assertion that raises does not hold. One that cannot be loaded says
nothing about the output.
"""

import asyncio
import dataclasses
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any


def prepare() -> tuple[dict[str, object], Callable[[Any], Any], Callable[[Any], Any]]:
    """Return the calls of the worker; nothing is imported, as each request names its file."""
    return {}, grade, lambda result: result


def grade(case: Mapping[str, Any]) -> dict[str, Any]:
    """Call an assertion on an output and return its raw answer."""
    folder = str(case["folder"])
    if folder not in sys.path:
        sys.path.insert(0, folder)
        os.chdir(folder)
    try:
        function = _function(case["code"], case["file"], case["function"])
    except BaseException as error:  # noqa: BLE001 # whatever the module of a user may raise
        return {"unloaded": _words(error)}
    try:
        said = function(case["output"], case["context"])
        if inspect.isawaitable(said):
            said = asyncio.run(_wait(said))
    except BaseException as error:  # noqa: BLE001 # the parent process turns it into a value
        return {"raised": _words(error)}
    if dataclasses.is_dataclass(said) and not isinstance(said, type):
        said = dataclasses.asdict(said)
    return {"said": said}


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:500]


@lru_cache(maxsize=1024)
def _function(code: str, file: str, name: str) -> Callable[..., Any]:
    if code:
        names: dict[str, Any] = {}
        # modules that users of promptfoo expect
        exec("import json, math, re\n" + code, names)  # what the user wrote
        return names["main"]
    path = Path(file)
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)


async def _wait(said: Any) -> Any:  # noqa: ANN401 # the user's
    return await said
