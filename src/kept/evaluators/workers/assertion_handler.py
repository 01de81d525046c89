"""Worker for Python assertions, which runs what a user wrote (`sandbox/worker_main.py`).

What it raises is its answer: an assertion that trips over an output does not hold of it. One that
cannot even be loaded says nothing of any output.
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
    """Nothing: each request names its file."""
    return {}, grade, lambda result: result


def grade(case: Mapping[str, Any]) -> dict[str, Any]:
    """What an assertion says of an output, as it says it."""
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
    except BaseException as error:  # noqa: BLE001 # the near end turns it into a value
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
        # the modules that promptfoo's users count on
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
