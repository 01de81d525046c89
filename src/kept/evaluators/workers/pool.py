"""Processes with one function each, started when needed, used again, ended when they take long."""

import json
from collections.abc import Mapping
from typing import Any

from kept.core.parsing import parse_json
from kept.core.rollout import Failure
from kept.core.text import count
from kept.evaluators.scorers.function import Function
from kept.sandbox.process import Turns
from kept.sandbox.worker import Child, ChildEnded, explained
from kept.settings import processors

MOST = 8
"""At once; more only where there are as many processors. Functions may wait for a service."""


class Processes:
    """Those of one function."""

    def __init__(self, function: Function) -> None:
        self._function = function
        self._idle: list[Child] = []
        self._turns = Turns(max(MOST, processors()))

    async def ask(self, given: Mapping[str, object], seconds: float) -> dict[str, Any] | Failure:
        """What the function says, within so many seconds; a `Failure` is never the candidate's."""
        target = self._function.target
        try:
            line = json.dumps(given, default=repr).encode() + b"\n"
            async with self._turns.take():
                child = self._idle.pop() if self._idle else await self._start()
                answer = await child.ask(line, seconds)
                self._idle.append(child)
            reply: dict[str, Any] = parse_json(answer, unique_keys=True)
        except ChildEnded as error:
            message = f"the process of `{target}` {error}"
            return Failure("harness", "infrastructure", message, error.detail)
        except TimeoutError:
            message = f"`{target}` did not answer within {count(seconds, 'second')}"
            return Failure("timeout", "infrastructure", message)
        except OSError as error:
            message = f"cannot start a process for `{target}`: {error.strerror}"
            return Failure("limit", "infrastructure", message)
        except ValueError as error:
            message = f"`{target}` returned what cannot be used: {error}"
            return Failure("harness", "infrastructure", message)
        if "error" in reply:
            words = reply["error"]
            message = f"`{target}` raised {explained(words) if self._function.walls else words}"
            return Failure("harness", "infrastructure", message, reply["detail"])
        return reply

    def close(self) -> None:
        """End them."""
        while self._idle:
            self._idle.pop().end()

    async def _start(self) -> Child:
        child = self._function.start()
        try:
            hello: dict[str, Any] = json.loads(await child.ask(None, self._function.timeout))
        except TimeoutError as error:
            raise ChildEnded("does not begin") from error
        if "problem" in hello:
            child.end()
            raise ChildEnded(f"cannot begin: {hello['problem']}")
        return child
