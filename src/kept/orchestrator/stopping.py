"""A run that is asked to stop: what was sent may be answered, and nothing more is sent."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from kept.core.ports import Priced, Scope
from kept.core.rollout import Failure

R = TypeVar("R", bound=Priced)


class Stop:
    """Whether somebody asked; called by whoever does, from the thread of the run."""

    def __init__(self) -> None:
        self.asked = False
        self.live = False
        """Whether anything new was asked for: before, a resume only hears what was said."""

    def __call__(self) -> None:
        """Ask."""
        self.asked = True


@dataclass(frozen=True, slots=True)
class Stoppable:
    """A scope that makes no new call once a stop was asked for; implements `Scope`."""

    scope: Scope
    stop: Stop

    async def call(
        self,
        request: object,
        reply: type[R],
        do: Callable[[], Awaitable[R | Failure]],
        worst_usd: float | None = None,
    ) -> R | Failure:
        """The journalled reply, or a new one; cancels where there would have to be a new one."""

        async def unless_stopped() -> R | Failure:
            if self.stop.asked:
                raise asyncio.CancelledError
            self.stop.live = True
            return await do()

        return await self.scope.call(request, reply, unless_stopped, worst_usd)

    def branch(self, name: str) -> "Stoppable":
        """The same below."""
        return Stoppable(self.scope.branch(name), self.stop)
