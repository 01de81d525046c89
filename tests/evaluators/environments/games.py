"""Real games of ALFWorld, and the expert that wins them."""

import asyncio
import sys
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path

import pytest

from kept.core.case import Case
from kept.core.llm import ModelRequest
from kept.core.rollout import Failure
from kept.evaluators.environments.alfworld import Players
from kept.evaluators.environments.datasets import values
from tests.conftest import needed_peer
from tests.evaluators.environments.shared import shared

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


PLANS = {
    "look at book under the desklamp": (
        *("go to bed 1", "take book 1 from bed 1", "go to sidetable 2", "use desklamp 1"),
    ),
    "put some alarmclock on desk": (
        *("go to sidetable 1", "take alarmclock 3 from sidetable 1"),
        *("go to desk 1", "put alarmclock 3 in/on desk 1"),
    ),
    "put a alarmclock in dresser": (
        *("go to shelf 3", "take alarmclock 1 from shelf 3"),
        *("go to dresser 1", "put alarmclock 1 in/on dresser 1"),
    ),
    "look at alarmclock under the desklamp": (
        *("go to desk 1", "use desklamp 1", "take alarmclock 2 from desk 1"),
    ),
    "put some book on sidetable": (
        *("go to bed 1", "take book 2 from bed 1"),
        *("go to sidetable 1", "put book 2 in/on sidetable 1"),
    ),
    "put a book in sofa": (
        *("go to sidetable 3", "take book 1 from sidetable 3"),
        *("go to sofa 1", "put book 1 in/on sofa 1"),
    ),
    "examine the alarmclock with the desklamp": (
        *("go to desk 2", "take alarmclock 1 from desk 2", "go to desk 1", "use desklamp 1"),
    ),
}
"""Actions that win short games of the samples, by goal: the planner takes seconds for each."""

MOST_STEPS = 4
"""Of these plans."""

_SPLIT = {
    "train": (
        *("valid_train/*DeskLamp-302", "valid_train/*Clock-None-D*-3??"),
        "valid_seen/look*AlarmClock*-323",
    ),
    "valid_seen": ("valid_seen/*simple-Book*", "valid_unseen/look*Clock-None-DeskLamp-308"),
}


def write_games(folder: Path) -> Path:
    """Four short games to train on, and four to decide by twice, in folders as ALFWorld has them.

    A race takes no fewer than eight cases, and longer games take minutes.
    """
    root = shared("alfworld", "json_2.1.1")
    for part, names in _SPLIT.items():
        found = [game for name in names for game in sorted(root.glob(f"{name}/*/game.tw-pddl"))]
        assert len(found) == 4
        for again in ("", "-again") if part == "valid_seen" else ("",):
            for game in found:
                place = folder / part / game.parts[-3] / f"{game.parts[-2]}{again}"
                place.mkdir(parents=True, exist_ok=True)
                (place / game.name).write_bytes(game.read_bytes())
    return folder


def plan_of(case: Case) -> list[str]:
    """Actions that win a game: the planner's."""
    return list(_plan(str(values(case)["gamefile"])))


@lru_cache
def _plan(file: str) -> tuple[str, ...]:
    # a process and a search each time, for the same plan
    async def asked() -> tuple[str, ...]:
        players = Players(1, 120.0)
        child = await players.start()
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
