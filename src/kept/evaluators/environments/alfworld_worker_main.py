"""The far end of a game: opens games of ALFWorld and does what it is told, a line at a time.

A script that imports nothing of Kept: `python -P alfworld_worker_main.py SYS_PATH`.
It is told `{"open": FILE}`,
then `{"act": ACTION}`; `{"plan": FILE}` asks for actions that win, as the planner finds them.
"""

import json
import os
import sys
import warnings
from importlib import import_module
from typing import Any


def main(path: str) -> None:
    """Answer until nobody asks any more."""
    # what TextWorld prints must not end up among our answers
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    sys.path[:] = json.loads(path)
    warnings.simplefilter("ignore")
    game: list[Any] = []
    for line in sys.stdin:
        asked: dict[str, str] = json.loads(line)
        try:
            if "open" in asked:
                while game:
                    game.pop().close()
                game.append(start(asked["open"]))
                told = seen(game[0].reset())
            elif "plan" in asked:
                told = {"plan": plan(asked["plan"])}
            else:
                told = seen(game[0].step(asked["act"])[0])
        except Exception as error:  # noqa: BLE001 # whatever TextWorld raises is told, and no crash
            told = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(told) + "\n")
        answers.flush()


def start(file: str, *, expert: bool = False) -> Any:  # noqa: ANN401 # TextWorld's
    """A game of a file."""
    # of the extra `alfworld`, which no type checker here knows
    textworld: Any = import_module("textworld")
    alfred: Any = import_module("alfworld.agents.environment.alfred_tw_env")
    wanted = textworld.EnvInfos(
        won=True, admissible_commands=True, extras=["gamefile"], policy_commands=expert
    )
    wrappers = [alfred.AlfredDemangler(), alfred.AlfredInfos]
    return textworld.start(file, wanted, wrappers=wrappers)


def seen(state: Any) -> dict[str, object]:  # noqa: ANN401 # TextWorld's
    """What a student may know of a state."""
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


if __name__ == "__main__":
    main(sys.argv[1])
