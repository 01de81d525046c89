"""Room in the budget: what is left of it goes to steps in their order, whoever is quicker."""

import asyncio
from collections.abc import Collection

from kept.core.rollout import Purpose
from kept.engine.purse import OutOfBudget, Purse


class Room:
    """Sets aside for rollouts, and has those wait whom others leave no room."""

    def __init__(self, purse: Purse) -> None:
        self._purse = purse
        self._released = asyncio.Event()
        self._waiting = 0
        """Asks that wait for what others hold."""
        self._first_open = 0
        self._asked: set[int] = set()
        """Open steps whose gate has asked."""
        self._largest = 0
        """Rollouts that one Order asked for at most."""

    def opened(self, first: int) -> None:
        """Hear which step is now the oldest that is open."""
        self._asked.difference_update(range(self._first_open, first))
        self._first_open = first
        self._released.set()

    def heard_from(self, step: int) -> None:
        """No room needs to be left for this step any more."""
        self._asked.add(step)
        self._released.set()

    async def reserve(self, rollouts: int, step: int, purposes: Collection[Purpose]) -> bool:
        """Set aside for so many rollouts; where they do not fit now, wait and tell so.

        What others hold may come back: only when nobody holds anything is it certain that they do
        not fit at all. A step leaves room for its elders that have yet to ask.
        """
        self._largest = max(self._largest, rollouts)
        elders = self._silent_elders(step) if self._purse.limited else 0
        try:
            leave = elders * self._largest + self._purse.leave(purposes)
            self._purse.reserve(rollouts, leave=leave)
        except OutOfBudget as error:
            if error.reason.kind == "minutes" or not (self._purse.held or elders):
                self.heard_from(step)
                raise
            self._released.clear()
            self._waiting += 1
            try:
                await self._released.wait()
            finally:
                self._waiting -= 1
            return False
        return True

    def give_back(self, rollouts: int) -> None:
        """So many rollouts need what was set aside for them no more."""
        self._purse.held -= rollouts
        if self._waiting and rollouts:
            self._released.set()

    def _silent_elders(self, step: int) -> int:
        elders = range(self._first_open, step)
        return len(elders) - len(self._asked.intersection(elders))
