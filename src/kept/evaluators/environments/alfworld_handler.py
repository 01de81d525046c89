"""Worker that plays games of ALFWorld (`sandbox/worker_main.py`).

It is asked `{"open": FILE}`, then `{"act": ACTION}`; `{"plan": FILE}` asks for actions that win, as
the planner finds them.
"""

import json
import sys
import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any


def prepare(path: str) -> tuple[dict[str, object], Callable[[Any], Any], Callable[[Any], Any]]:
    """Set the module path of the parent process, and return the calls of the worker."""
    sys.path[:] = json.loads(path)
    warnings.simplefilter("ignore")
    game: list[Any] = []

    def call(asked: dict[str, str]) -> object:
        if "plan" in asked:
            return {"plan": plan(asked["plan"])}
        if "act" in asked:
            return seen(game[0].step(asked["act"])[0])
        while game:
            game.pop().close()
        game.append(start(asked["open"]))
        return seen(game[0].reset())

    return {}, call, lambda result: result


def start(file: str, *, expert: bool = False) -> Any:  # noqa: ANN401 # TextWorld's
    """Open the game of a file in TextWorld."""
    # of the extra `alfworld`, which no type checker here knows
    textworld: Any = import_module("textworld")
    alfred: Any = import_module("alfworld.agents.environment.alfred_tw_env")
    wanted = textworld.EnvInfos(
        won=True, admissible_commands=True, extras=["gamefile"], policy_commands=expert
    )
    wrappers = [alfred.AlfredDemangler(), alfred.AlfredInfos]
    return textworld.start(file, wanted, wrappers=wrappers)


def seen(state: Any) -> dict[str, object]:  # noqa: ANN401 # TextWorld's
    """Part of a state that the student may see."""
    text = str(state.feedback).replace("-= Welcome to TextWorld, ALFRED! =-", "").strip()
    return {
        "text": text,
        "possible": sorted(state.admissible_commands),
        "won": bool(state.won),
    }


def plan(file: str) -> list[str]:
    """Actions that win a game, by the planner that comes with TextWorld."""
    game = start(file, expert=True)
    return list(game.reset().policy_commands)
