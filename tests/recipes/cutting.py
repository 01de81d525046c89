"""A task whose models answer over HTTP, cut after everything it wrote, and resumed."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from kept.core.plan import Plan
from kept.core.state import State
from kept.run import Watch, resume, start
from kept.store import codec
from kept.testing.server import ModelServer
from tests.engine.cutting import Home1, Moments, Rows, calls, cut, rows
from tests.sampling import sample

SOME = 12
"""Moments from which a run is resumed in each run of the tests."""


def check_every_cut(
    make: Callable[[], Plan],
    server: ModelServer,
    folder: Path,
    *,
    everything: bool,
    every: int = 1,
    lost: bool = False,
    asks: Callable[[str], bool] = bool,
) -> State:
    """Resume from moments of a run: the same end, and no reply that was written asked again.

    From one in `every` if everything is to be tried; else from `SOME` of those.

    Calls of models are those in scopes of which `asks` is true. What the whole run came to, so that
    a test can say that it was worth cutting. The journal may have
    `lost` all records behind the last step that is closed.
    """

    def asked_for(lines: Rows) -> int:
        return sum(n for (scope, _), n in calls(lines).items() if asks(scope))

    moments = Moments()
    whole, state = asyncio.run(start(make(), Home1(folder / "home", moments), Watch((moments,))))
    assert asked_for(rows(whole)) == len(server.answered), "a call that is not in the journal"
    for sizes in sample(moments.sizes[::every], SOME, everything):
        part = cut(whole, sizes, folder / "part")
        if lost:
            lose_open_steps(part)
        before, asked = rows(part), len(server.answered)
        done = {row.entry()[0] for row in before if isinstance(row, codec.RolloutLine)}
        _, again = asyncio.run(resume(make(), part))
        assert again.settled() == state.settled()
        after = rows(part)
        assert max(calls(after).values()) == 1, "a call whose reply was written was made again"
        assert len(server.answered) - asked == asked_for(after) - asked_for(before)
        pairs = [row.entry()[0] for row in after if isinstance(row, codec.RolloutLine)]
        assert len(pairs) == len(set(pairs)) and done <= set(pairs)
        assert again.spend.calls >= state.spend.calls, "a call is not in the books"
    return state


def lose_open_steps(folder: Path) -> None:
    """Cut off what a journal has behind the last step that is closed, or behind its start."""
    path = folder / "journal.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    while len(lines) > 1 and b'"kind":"step_closed"' not in lines[-1]:
        lines.pop()
    path.write_bytes(b"".join(lines))
