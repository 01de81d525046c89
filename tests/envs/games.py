"""Real games of ALFWorld, and the expert that wins them."""

import asyncio
import sys
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path

import pytest

from kept.core.case import Case
from kept.core.model import ModelRequest
from kept.core.rollout import Failure
from kept.envs.alfworld.playing import Players
from kept.envs.fields import values
from tests.conftest import needed_peer
from tests.envs.shared import shared

SIMPLE = "pick_and_place_simple-Book-None-Sofa-229"
COOL = "pick_cool_then_place_in_recep-Apple-None-GarbageCan-2"
LIGHT = "look_at_obj_in_light-AlarmClock-None-DeskLamp-323"


@pytest.fixture
def games() -> Iterator[Path]:
    """The folder of games, with the packages that play them at hand."""
    folder, before = needed_peer("alfworld"), list(sys.path)
    # behind all others: what both have is taken from the environment of the tests
    sys.path.append(str(folder))
    yield shared("alfworld", "json_2.1.1")
    sys.path[:] = before


def plan_of(case: Case) -> list[str]:
    """Actions that win a game: the planner's."""
    return list(_plan(str(values(case)["gamefile"])))


@lru_cache
def _plan(file: str) -> tuple[str, ...]:
    # a process and a search each time, for the same plan
    async def asked() -> tuple[str, ...]:
        players = Players(1, 120.0)
        child = players.child()
        assert not isinstance(child, Failure)
        found = await players.ask(child, {"plan": file})
        child.end()
        assert not isinstance(found, Failure)
        return tuple(found["plan"])

    return asyncio.run(asked())


def expert(case: Case) -> Callable[[ModelRequest], str]:
    """A student that plays by the plan, one action for each that it has done."""
    plan = plan_of(case)

    def act(request: ModelRequest) -> str:
        done = sum(message.role == "assistant" for message in request.messages)
        return f"Step {done + 1} of the plan.\n<action>{plan[done]}</action>"

    return act
