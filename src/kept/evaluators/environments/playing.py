"""Games being played: a process each, asked for one action at a time.

A process that has ended its game plays the next one: it takes longer to start than a game to open.
"""

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kept.core.rollout import NO_FILES, Failure, TraceItem
from kept.core.words import count
from kept.evaluators.environments.contract import Episode, Posed, Turn
from kept.evaluators.environments.opened import STEP
from kept.sandbox.child import Child, ChildEnded
from kept.sandbox.turns import Turns
from kept.settings import child_environment

_PLAYER = Path(__file__).with_name("alfworld_worker_main.py")
_ACTION = re.compile(r"<action>(.*?)(?:</action>|\Z)", re.DOTALL | re.IGNORECASE)

SYSTEM = """\
You act in a household that is described to you in text, and have a task to do there. In each turn
you are told what you see and which actions are possible. Think briefly, then give exactly one of
the possible actions, word for word, between <action> and </action>."""


class Players:
    """Processes that play, as many as there may be at once."""

    def __init__(self, most: int, seconds: float) -> None:
        self._seconds = seconds
        self._idle: list[Child] = []
        self.turns = Turns(most)

    async def ask(self, child: Child, said: Mapping[str, object]) -> dict[str, Any] | Failure:
        """What a process answers; one that does not is gone."""
        try:
            line = json.dumps(said).encode() + b"\n"
            answer: dict[str, Any] = json.loads(await child.ask(line, self._seconds))
        except ChildEnded as error:
            return Failure("crash", "infrastructure", f"the game's process {error}", error.detail)
        except TimeoutError:
            message = f"the game did not go on within {count(self._seconds, 'second')}"
            return Failure("timeout", "infrastructure", message)
        if "error" in answer:
            child.end()
            return Failure("harness", "infrastructure", f"the game: {answer['error']}")
        return answer

    def child(self) -> Child | Failure:
        """A process that plays nothing."""
        while self._idle:
            child = self._idle.pop()
            if child.alive:
                return child
        argv = [sys.executable, "-B", "-P", str(_PLAYER), json.dumps(sys.path)]
        try:
            return Child(argv, Path("/"), child_environment({}, ()))
        except OSError as error:
            message = f"cannot start a process for a game: {error.strerror}"
            return Failure("limit", "infrastructure", message)

    def give_back(self, child: Child) -> None:
        """A process whose game is over."""
        if child.alive:
            self._idle.append(child)

    def close(self) -> None:
        """End those that are idle; the others are ended by whoever has them."""
        while self._idle:
            self._idle.pop().end()


class Game(Episode):
    """One game, as an episode."""

    def __init__(self, file: Path, max_steps: int, players: Players) -> None:
        self._file = file
        self._most = max_steps
        self._players = players
        self._child: Child | None = None
        self._held = False
        self._steps = 0
        self._possible: list[str] = []

    async def pose(self) -> Posed | Failure:
        """Open it, as soon as there is a process for it."""
        await self._players.turns.take().acquire()
        self._held = True
        child = self._players.child()
        if isinstance(child, Failure):
            return child
        self._child = child
        seen = await self._players.ask(child, {"open": str(self._file)})
        if isinstance(seen, Failure):
            return seen
        return Posed(self._shown(seen), SYSTEM)

    async def answer(self, said: str, files: Mapping[str, bytes] = NO_FILES) -> Turn | Failure:
        """Do what the student wants done."""
        assert self._child is not None
        action = self._action(said)
        if isinstance(action, Failure):
            return action
        seen = await self._players.ask(self._child, {"act": action})
        if isinstance(seen, Failure):
            return seen
        self._steps += 1
        reasoning = _ACTION.sub("", said).strip()
        data: dict[str, object] = {"step": self._steps, "action": action, "said": said}
        data |= {"reasoning": reasoning} if reasoning and reasoning != action else {}
        over = seen["won"] or self._steps >= self._most
        return Turn(
            self._shown(seen),
            over=over,
            item=TraceItem(STEP, seen["text"], data),
            output="won" if seen["won"] else "lost",
            metrics={"won": float(seen["won"]), "steps": float(self._steps)},
        )

    async def close(self) -> None:
        """Have the process play another game; one that was cut in the middle of a step is gone."""
        if self._child is not None:
            self._players.give_back(self._child)
            self._child = None
        if self._held:
            self._held = False
            self._players.turns.take().release()

    def _action(self, said: str) -> str | Failure:
        """What is between the tags; without any, a last line that is a possible action."""
        tagged = _ACTION.findall(said)
        action = " ".join(tagged[-1].split()) if tagged else said.strip().splitlines()[-1].strip()
        if tagged and action:
            return action
        if not tagged and action in self._possible:
            return action
        return Failure("parse", "candidate", "the reply has no action", said[-500:])

    def _shown(self, seen: Mapping[str, Any]) -> str:
        self._possible = seen["possible"]
        actions = "\n".join(f"- {one}" for one in self._possible)
        return f"{seen['text']}\n\nPossible actions:\n{actions}"
