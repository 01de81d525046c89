"""What every use of a tool has in common: it is journalled, timed, and not endless."""

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

from kept.core.ports import Scope
from kept.core.rollout import Failure
from kept.core.tool import ToolAnswer

MOST_TEXT = 190_000
"""Characters of what a tool says; more than that would not be told to a model anyway."""


async def journalled(
    scope: Scope, request: Mapping[str, object], do: Callable[[], Awaitable[ToolAnswer | Failure]]
) -> ToolAnswer | Failure:
    """What a use came to; in a resume, what it came to then."""

    async def timed() -> ToolAnswer | Failure:
        began = time.monotonic()
        answer = await do()
        if isinstance(answer, Failure):
            return answer
        return replace(answer, seconds=round(time.monotonic() - began, 4))

    return await scope.call(request, ToolAnswer, timed, 0.0)


def cut(text: str) -> str:
    """As much of a text as is told, with how much is not."""
    if len(text) <= MOST_TEXT:
        return text
    return f"{text[:MOST_TEXT]}\n[{len(text) - MOST_TEXT:,} more characters were left out]"
