"""Money of calls to models: asked for before each call, counted with each reply.

Where whoever calls knows the most that a call can cost, that much is set aside while it is made.
Else the dearest call so far stands for the next one, that of proposers for a proposer's and that of
rollouts for a rollout's, and before the first reply is in, one call is made at a time.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping

from kept.core.budget import NO_CALL, StopReason
from kept.core.proposal import proposal_scope
from kept.core.rollout import Job, Usage
from kept.engine.past import in_rollout
from kept.engine.purse import OutOfBudget, Purse

HAIR = 1e-9
"""Sums of cents in floating point must not refuse the last fitting call."""


class Till:
    """What calls of proposers go through, and those of rollouts that have no price."""

    def __init__(self, purse: Purse) -> None:
        self._purse = purse
        self.dearest = NO_CALL
        """Of the calls that nobody could tell a worst case of."""
        self._aside = 0.0
        """The worst cases of the calls under way that have one."""
        self._known = 0
        """Calls under way whose worst case is known."""
        self._unknown: Counter[bool] = Counter()
        """The others, by whether a proposer makes them."""
        self._ended = asyncio.Event()

    async def begin(self, worst_usd: float | None, owner: int | Job = 0) -> None:
        """Wait until a call fits; raises `OutOfBudget` where it never will."""
        while (room := self._purse.money_left(owner)) is not None:
            for_end = self._purse.for_the_end(owner)
            room -= for_end
            proposing = not isinstance(owner, Job)
            if self._fits(worst_usd, room, proposing):
                break
            if self._idle:
                each = worst_usd if worst_usd is not None else self._each(proposing) or 0.0
                left = f"${max(0.0, room):.4f} is left"
                left += f", and ${for_end:.4f} are set aside for the end" if for_end else ""
                words = f"another call of up to ${each:.4f} does not fit: {left}"
                raise OutOfBudget(StopReason("usd", words))
            self._ended.clear()
            await self._ended.wait()
        if worst_usd is None:
            self._unknown[not isinstance(owner, Job)] += 1
        else:
            self._known += 1
            self._aside += worst_usd

    @property
    def _idle(self) -> bool:
        """Whether no call is under way."""
        return not self._known + self._unknown.total()

    def _each(self, proposing: bool) -> float | None:
        """What stands for a call that nobody can tell the price of."""
        return self.dearest.proposing if proposing else self.dearest.rollout

    def _fits(self, worst_usd: float | None, room: float, proposing: bool) -> bool:
        if worst_usd == 0:
            return True
        asked = self._unknown + Counter({proposing: int(worst_usd is None)})
        prices = {who: self._each(who) for who in asked}
        if None in prices.values():
            # nothing is known of what is under way, or of what is to begin: it goes alone
            return room > 0 and self._idle
        needed = self._aside + sum(n * (prices[who] or 0.0) for who, n in asked.items())
        return room > 0 and room + HAIR >= needed + (worst_usd or 0.0)

    def end(self, worst_usd: float | None, usage: Usage | None, owner: int | Job = 0) -> None:
        """Such a call has its reply, which used this much; None where it has none.

        What failed teaches nothing of what a call costs.
        """
        proposing = not isinstance(owner, Job)
        if worst_usd is None:
            self._unknown[proposing] -= 1
        else:
            self._known -= 1
            self._aside = self._aside - worst_usd if self._known else 0.0
        if usage is not None and worst_usd is None:
            self.dearest = self.dearest.learn(usage.usd, proposing=proposing)
        self._ended.set()

    def learn(self, unpriced: Mapping[str, float]) -> None:
        """Take into account calls of an earlier sitting, the dearest of each scope."""
        for scope, usd in unpriced.items():
            self.dearest = self.dearest.learn(usd, proposing=not in_rollout(scope))

    def of(self, owner: int | Job) -> "OwnTill":
        """The same for the proposer of one step, or for one rollout."""
        if self._purse.past:
            scope = owner.scope if isinstance(owner, Job) else proposal_scope(owner)
            self._purse.take_over(scope, owner)
        return OwnTill(self, self._purse, owner)


class OwnTill:
    """What the calls of one owner go through."""

    def __init__(self, till: Till, purse: Purse, owner: int | Job) -> None:
        self._till = till
        self._purse = purse
        self._owner = owner

    async def begin(self, worst_usd: float | None) -> None:
        """Wait until a call fits; raises `OutOfBudget` where it never will."""
        await self._till.begin(worst_usd, self._owner)

    def end(self, worst_usd: float | None, usage: Usage | None) -> None:
        """Such a call has its reply, which used this much; None where it has none."""
        self._till.end(worst_usd, usage, self._owner)

    def count(self, usage: Usage) -> None:
        """What the owner's calls come to so far."""
        self._purse.hold(self._owner, usage)
