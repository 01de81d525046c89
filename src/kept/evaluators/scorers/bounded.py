"""Checks that a hostile text could hold up for ever, measured in processes of their own.

An expression can try more ways to match than there is time for, and a document of a few lines can
unfold to more than there is memory for. A process that takes too long is ended, and the next check
gets another.
"""

import time
from collections.abc import Mapping
from dataclasses import astuple
from typing import Any

from kept.core.rollout import Failure
from kept.evaluators.scorers.checks import Matches, Measured, Parses
from kept.sandbox.bounded import MEMORY, BoundedCalls, CallRaised
from kept.sandbox.child import ChildEnded
from kept.sandbox.turns import Turns
from kept.settings import processors

BOUNDED = (Matches, Parses)
"""The checks that may take long; all others go through the text once."""

LEAST = 0.01
"""Seconds that a rule gets, however long those before it took."""


class Patience:
    """Seconds that the rules of one rollout may still take; those spent waiting do not count."""

    def __init__(self, left: float) -> None:
        self.left = left


class Bounded:
    """Such processes, started when needed and used again."""

    def __init__(self) -> None:
        self._calls = BoundedCalls("kept.evaluators.scorers.checks:measured")
        # no more at once than there are processors, however many rollouts are in flight
        self._turns = Turns(processors())

    async def measure(
        self, name: str, check: Matches | Parses, text: str, patience: Patience
    ) -> Measured | Failure:
        """What a check says of a text, or that it took too much of time or memory."""
        given = {"kind": type(check).__name__, "of": astuple(check), "text": text}
        try:
            async with self._turns.take():
                return Measured(*await self._ask(given, patience))
        except TimeoutError:
            message = f"the rule `{name}` took too long on this candidate"
            return Failure("timeout", "candidate", message)
        except MemoryError:
            message = f"the rule `{name}` took more than {MEMORY // 2**30} GiB on this candidate"
            return Failure("limit", "candidate", message)
        except ChildEnded as error:
            message = f"the process of the rule `{name}` {error}"
            return Failure("harness", "infrastructure", message, error.detail)
        except CallRaised as error:
            message = f"the rule `{name}` raised {error}"
            return Failure("harness", "infrastructure", message, error.detail)
        except OSError as error:
            message = f"cannot start a process for the rule `{name}`: {error.strerror}"
            return Failure("limit", "infrastructure", message)

    def close(self) -> None:
        """End the processes."""
        self._calls.close()

    async def _ask(self, given: Mapping[str, object], patience: Patience) -> list[Any]:
        await self._calls.prepare()
        seconds = max(patience.left, LEAST)
        began = time.monotonic()
        try:
            return await self._calls.ask(given, seconds)
        finally:
            patience.left -= time.monotonic() - began
