"""Checks that a hostile text could hold up for ever, measured in processes of their own.

An expression can try more ways to match than there is time for, and a document of a few lines can
unfold to more than there is memory for. A process that takes too long is ended, and the next check
gets another.
"""

import json
import time
from collections.abc import Mapping
from dataclasses import astuple
from pathlib import Path
from typing import Any

from kept.core.rollout import Failure
from kept.sandbox.child import Child, ChildEnded
from kept.sandbox.turns import Turns
from kept.scorers.bounded_far import MEMORY
from kept.scorers.checks import Matches, Measured, Parses
from kept.scorers.python import Function
from kept.settings import processors

BOUNDED = (Matches, Parses)
"""The checks that may take long; all others go through the text once."""

LEAST = 0.01
"""Seconds that a rule gets, however long those before it took."""

_FAR = Function("kept.scorers.bounded_far:measure", Path(__file__).parents[2])


class Patience:
    """Seconds that the rules of one rollout may still take; those spent waiting do not count."""

    def __init__(self, left: float) -> None:
        self.left = left


class Bounded:
    """Such processes, started when needed and used again."""

    def __init__(self) -> None:
        self._idle: list[Child] = []
        # no more at once than there are processors, however many rollouts are in flight
        self._turns = Turns(processors())

    async def measure(
        self, name: str, check: Matches | Parses, text: str, patience: Patience
    ) -> Measured | Failure:
        """What a check says of a text, or that it took too much of time or memory."""
        given = {"kind": type(check).__name__, "of": astuple(check), "text": text}
        try:
            async with self._turns.take():
                reply = await self._ask(given, patience)
        except TimeoutError:
            message = f"the rule `{name}` took too long on this candidate"
            return Failure("timeout", "candidate", message)
        except ChildEnded as error:
            message = f"the process of the rule `{name}` {error}"
            return Failure("harness", "infrastructure", message, error.detail)
        except OSError as error:
            message = f"cannot start a process for the rule `{name}`: {error.strerror}"
            return Failure("limit", "infrastructure", message)
        if "result" in reply:
            return Measured(*reply["result"])
        if reply["error"].startswith("MemoryError"):
            message = f"the rule `{name}` took more than {MEMORY // 2**30} GiB on this candidate"
            return Failure("limit", "candidate", message)
        message = f"the rule `{name}` raised {reply['error']}"
        return Failure("harness", "infrastructure", message, reply["detail"])

    def close(self) -> None:
        """End the processes."""
        while self._idle:
            self._idle.pop().end()

    async def _ask(self, given: Mapping[str, object], patience: Patience) -> dict[str, Any]:
        child = self._idle.pop() if self._idle else await self._start()
        seconds = max(patience.left, LEAST)
        asked = json.dumps({"case": {**given, "seconds": seconds}}).encode() + b"\n"
        began = time.monotonic()
        try:
            reply = await child.ask(asked, seconds)
        finally:
            patience.left -= time.monotonic() - began
        self._idle.append(child)
        return json.loads(reply)

    async def _start(self) -> Child:
        child = _FAR.start()
        try:
            hello: dict[str, Any] = json.loads(await child.ask(None, _FAR.timeout))
        except TimeoutError as error:
            raise ChildEnded("does not begin") from error
        if "problem" in hello:
            child.end()
            raise ChildEnded(f"cannot begin: {hello['problem']}")
        return child
