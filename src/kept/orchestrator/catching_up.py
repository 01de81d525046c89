"""Workers side by side, in a resume: what they did before comes first, then anything new.

Each hears from the journal what it has done, and makes its changes of the shared files again. A
tool that is used anew before the others are so far would see files that lack their changes, and
its own change would count as older than theirs. So who has heard all waits for the others, also
for those whom a manager sends that stands in the place of one of them.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from kept.core.ports import Priced, Scope
from kept.core.rollout import Failure

R = TypeVar("R", bound=Priced)


class CatchingUp:
    """The workers of one turn, of whom so many may do something new at a time."""

    def __init__(self, workers: int, side_by_side: int, above: "Following | None" = None) -> None:
        self.above = above
        """Who sent them, where that is somebody of another turn."""
        self.places = asyncio.Semaphore(side_by_side)
        self._behind = workers
        self._waits = False
        self._all: asyncio.Event = above.turn.everybody if above else asyncio.Event()

    @property
    def everybody(self) -> asyncio.Event:
        """Set when nobody has anything left to hear, of this turn and of those above it."""
        return self._all

    def one_has(self, *, waits: bool) -> None:
        """One more has heard all there is, and waits for the others, or has ended."""
        self._behind -= 1
        self._waits = self._waits or waits
        if self._behind:
            return
        if self.above is None:
            self._all.set()
        elif self._waits:
            # who sent them hears nothing before they have answered; if none waits, it goes on
            self.above.has_heard(waits=True)


@dataclass(slots=True)
class Following:
    """One of them."""

    turn: CatchingUp
    live: bool = False
    """Whether it may do something new."""
    _heard: bool = False
    _first: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def go_live(self) -> None:
        """Wait until all have heard what there is, and then for a place."""
        async with self._first:
            if self.live:
                return
            self.has_heard(waits=True)
            # who comes last finds nobody to wait for, and is not to be served first for that
            await asyncio.sleep(0)
            await self.turn.everybody.wait()
            if self.turn.above is not None:
                await self.turn.above.go_live()
            await self.turn.places.acquire()
            self.live = True

    def ended(self) -> None:
        """It has done all that it will."""
        self.has_heard(waits=False)
        if self.live:
            self.turn.places.release()

    def has_heard(self, *, waits: bool) -> None:
        """It has heard all there is; said once."""
        if not self._heard:
            self._heard = True
            self.turn.one_has(waits=waits)


class _NewError(Exception):
    """The journal does not hold it."""


@dataclass(frozen=True, slots=True)
class CatchUp:
    """The scope of one worker; implements `kept.core.ports.Scope`."""

    scope: Scope
    worker: Following

    async def call(
        self,
        request: object,
        reply: type[R],
        do: Callable[[], Awaitable[R | Failure]],
        worst_usd: float | None = None,
    ) -> R | Failure:
        """The journalled reply, or a new one as soon as it may be had."""

        async def if_live() -> R | Failure:
            if not self.worker.live:
                raise _NewError
            return await do()

        try:
            return await self.scope.call(request, reply, if_live, worst_usd)
        except _NewError:
            # not inside of the call: money would be set aside meanwhile that others wait for
            await self.worker.go_live()
        return await self.scope.call(request, reply, do, worst_usd)

    def branch(self, name: str) -> "CatchUp":
        """The same below."""
        return CatchUp(self.scope.branch(name), self.worker)


def turn_of(scope: Scope, workers: int, side_by_side: int) -> tuple[CatchingUp, Scope]:
    """The workers that are sent from a scope, and the scope that theirs are below."""
    if isinstance(scope, CatchUp):
        return CatchingUp(workers, side_by_side, scope.worker), scope.scope
    return CatchingUp(workers, side_by_side), scope
