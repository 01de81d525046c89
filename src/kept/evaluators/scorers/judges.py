"""What all who ask judges need: to ask several at once, and to say whose failure a failure is."""

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import replace
from typing import TypeVar

from kept.core.ports import Model
from kept.core.rollout import Failure

T = TypeVar("T")


async def side_by_side(asked: Sequence[Awaitable[T]]) -> list[T]:
    """All of them; when one raises, the others are not left running."""
    if len(asked) == 1:
        # beside nothing: a task would only cost, and most cases have one metric
        return [await asked[0]]
    tasks = [asyncio.ensure_future(one) for one in asked]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def judges_own(failure: Failure, model: Model) -> Failure:
    """A failure of a judge: no candidate's, and not tried again where the same would be heard."""
    return replace(
        failure,
        blame="infrastructure",
        message=f"the judge `{model.name}`: {failure.message}",
        tried=failure.tried or failure.blame == "candidate",
    )
