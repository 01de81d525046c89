"""Money of calls that proposers make: asked for before each call, counted with each reply.

What a call will cost is not known before it is made. Where there is a limit of money, the dearest
call so far stands for the next one; before the first reply is in, one call is made at a time.
"""

import asyncio

from kept.core.budget import StopReason
from kept.core.rollout import Usage
from kept.engine.purse import OutOfBudget, Purse


class Till:
    """What the calls of all proposers of a run go through."""

    def __init__(self, purse: Purse) -> None:
        self._purse = purse
        self._dearest: float | None = None
        self._calling = 0
        self._ended = asyncio.Event()

    async def begin(self) -> None:
        """Wait until a call fits; raises `OutOfBudget` where it never will."""
        while (room := self._purse.money_left()) is not None:
            each = self._dearest
            many = self._calling + 1
            if room > 0 and (many == 1 if each is None else room + 1e-9 >= each * many):
                break
            if not self._calling:
                words = f"another call of about ${each or 0:.4f} does not fit: ${room:.4f} is left"
                raise OutOfBudget(StopReason("usd", words))
            self._ended.clear()
            await self._ended.wait()
        self._calling += 1

    def end(self, usage: Usage | None) -> None:
        """A call has its reply, which used this much; None where it has none.

        What failed teaches nothing of what a call costs.
        """
        self._calling -= 1
        if usage is not None:
            self._dearest = max(self._dearest or 0.0, usage.usd)
        self._ended.set()

    def of(self, step: int) -> "StepTill":
        """The same for one step."""
        return StepTill(self, self._purse, step)


class StepTill:
    """What the calls of one step's proposer go through."""

    def __init__(self, till: Till, purse: Purse, step: int) -> None:
        self.begin = till.begin
        self.end = till.end
        self._purse = purse
        self._step = step

    def count(self, usage: Usage) -> None:
        """What the step's calls come to so far."""
        self._purse.hold(self._step, usage)
