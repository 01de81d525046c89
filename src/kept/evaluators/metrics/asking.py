"""Questions of a metric to its judge: each in a branch of its own, tried again where it fails.

What is judged is fenced off as material. A judge's failure is no candidate's.
"""

import json
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, TypeVar

from kept.core.model import Message, ModelRequest
from kept.core.ports import Model, Scope
from kept.core.rollout import Failure
from kept.evaluators.scorers.judges import judges_own, side_by_side
from kept.models.ask import ask_within
from kept.models.fencing import Named, fenced
from kept.models.structured_output import ReplyRules

T = TypeVar("T")
Schema = Mapping[str, object]

TEXT: Schema = {"type": "string"}


def schema(**properties: Schema) -> Schema:
    """An object with these fields, all of them, in this order: a reason before what it leads to."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


class Judge:
    """A judge on behalf of one metric of one exchange."""

    def __init__(
        self, model: Model, scope: Scope, *, seconds: float, retries: int, seed: int
    ) -> None:
        self.model = model
        self._scope = scope
        self._seconds = seconds
        self._retries = retries
        self._seed = seed
        self.tries = 1
        """Of the question that took most of them."""
        self.seconds = 0.0
        """That replies were waited for in all, as they are written down with them."""

    async def ask(
        self, name: str, told: str, shown: Sequence[Named], wanted: Schema
    ) -> dict[str, Any] | Failure:
        """What it answers, as the schema wants it."""
        messages = (Message("system", told.strip()), Message("user", fenced(shown)))
        request = ModelRequest(messages, schema=wanted, seed=self._seed)
        scope = self._scope.branch(name)
        tried = 0
        while True:
            tried += 1
            self.tries = max(self.tries, tried)
            rules = ReplyRules(ignore_extra_keys=True)
            reply = await ask_within(self._seconds, scope, self.model, request, rules)
            if not isinstance(reply, Failure):
                self.seconds += reply.seconds
                return json.loads(reply.text)
            if tried > self._retries:
                return judges_own(reply, self.model)


async def all_of(asked: Sequence[Awaitable[T | Failure]]) -> list[T] | Failure:
    """All answers; the first failure where there is one."""
    found: list[T] = []
    for answer in await side_by_side(asked):
        if isinstance(answer, Failure):
            return answer
        found.append(answer)
    return found
