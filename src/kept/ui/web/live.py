"""Server-sent events: a word whenever a run has moved, so that an open page fetches itself anew.

Files are looked at, nothing is read. What has changed is for the page to ask.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from kept.store.lock import holder
from kept.ui.web.source import Runs

EVERY = 0.25
"""Seconds between two looks at one run."""
EVERY_LIST = 1.0
"""The same at all of them."""
EVERY_REFINE = 0.5
"""The same at the refinements of one."""
ALIVE = 15.0
"""Seconds after which a silent stream says that it is there."""

Mark = object


def run_mark(folder: Path) -> Mark:
    """What changes when a run is written, stopped, killed or gone on with."""
    sizes = [_size(folder / name) for name in ("journal.jsonl", "rollouts.jsonl")]
    return [*sizes, holder(folder) is not None]


def list_mark(runs: Runs) -> Mark:
    """The same of all runs."""
    return runs.marks()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1


async def stream(
    look: Callable[[], Mark], every: float, gone: Callable[[], Awaitable[bool]]
) -> AsyncIterator[str]:
    """A line for each change, until nobody listens."""
    before = await asyncio.to_thread(look)
    yield f"retry: 1000\nevent: hello\ndata: {json.dumps(before)}\n\n"
    silent = 0.0
    while not await gone():
        await asyncio.sleep(every)
        now = await asyncio.to_thread(look)
        silent += every
        if now != before:
            yield f"event: change\ndata: {json.dumps(now)}\n\n"
            before, silent = now, 0.0
        elif silent >= ALIVE:
            yield ": here\n\n"
            silent = 0.0
