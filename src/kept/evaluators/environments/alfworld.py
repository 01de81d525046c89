"""ALFWorld: household tasks in a text world, played step by step in TextWorld.

A case is a game file, `game.tw-pddl`. It is read from folders in ALFWorld's layout, or from rows
with `gamefile`. Each game runs in a process at its own pace; games do not wait for each other. A
process that has finished its game plays the next one, because starting it takes longer than
opening a game. Needs the extra `alfworld`.
"""

import hashlib
import importlib.util
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kept.core.case import Case
from kept.core.ports import Scope
from kept.core.rollout import NO_FILES, Failure, Job, Rollout, TraceItem
from kept.core.text import count
from kept.errors import SetupError
from kept.evaluators.environments.base import (
    STEP,
    About,
    Defect,
    Environment,
    Episode,
    Graded,
    Item,
    Posed,
    Turn,
    initial,
)
from kept.evaluators.environments.datasets import (
    SUFFIXES,
    Fields,
    as_items,
    item,
    rows_in,
    values,
)
from kept.sandbox.worker import Child, ChildEnded
from kept.sandbox.worker_pool import CallRaised, WorkerPool, worker_command
from kept.settings import child_environment, install_command

_HANDLER = Path(__file__).with_name("alfworld_handler.py")
_ACTION = re.compile(r"<action>(.*?)(?:</action>|\Z)", re.DOTALL | re.IGNORECASE)

SYSTEM = """\
You act in a household that is described to you in text, and have a task to do there. In each turn
you are told what you see and which actions are possible. Think briefly, then give exactly one of
the possible actions, word for word, between <action> and </action>."""


class Players:
    """Pool of processes that play games, at most `most` at a time."""

    def __init__(self, most: int, seconds: float) -> None:
        self._seconds = seconds
        argv = worker_command(_HANDLER, json.dumps(sys.path))
        self.pool = WorkerPool(lambda: Child(argv, Path("/"), child_environment({}, ())), most=most)

    async def start(self) -> Child | Failure:
        """Take a free process; a failure if none can be started."""
        try:
            return await self.pool.take()
        except ChildEnded as error:
            return Failure("crash", "infrastructure", f"the game's process {error}", error.detail)
        except OSError as error:
            message = f"cannot start a process for a game: {error.strerror}"
            return Failure("limit", "infrastructure", message)

    async def ask(self, child: Child, said: Mapping[str, object]) -> dict[str, Any] | Failure:
        """Ask a process and return its answer; end the process if none comes."""
        try:
            return await self.pool.ask_one(child, said, self._seconds)
        except ChildEnded as error:
            return Failure("crash", "infrastructure", f"the game's process {error}", error.detail)
        except TimeoutError:
            message = f"the game did not go on within {count(self._seconds, 'second')}"
            return Failure("timeout", "infrastructure", message)
        except CallRaised as error:
            child.end()
            words = str(error).partition("\n")[0]
            return Failure("harness", "infrastructure", f"the game: {words}", error.detail)


class Game(Episode):
    """Episode of one game."""

    def __init__(self, file: Path, max_steps: int, players: Players) -> None:
        self._file = file
        self._most = max_steps
        self._players = players
        self._child: Child | None = None
        self._held = False
        self._steps = 0
        self._possible: list[str] = []

    async def pose(self) -> Posed | Failure:
        """Wait for a free process and open the game in it."""
        await self._players.pool.turns.take().acquire()
        self._held = True
        child = await self._players.start()
        if isinstance(child, Failure):
            return child
        self._child = child
        seen = await self._players.ask(child, {"open": str(self._file)})
        if isinstance(seen, Failure):
            return seen
        return Posed(self._shown(seen), SYSTEM)

    async def answer(self, said: str, files: Mapping[str, bytes] = NO_FILES) -> Turn | Failure:
        """Play the action that the student chose."""
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
        """Return the process to the pool, which drops one that was cut in the middle of a step."""
        if self._child is not None:
            self._players.pool.give_back(self._child)
            self._child = None
        if self._held:
            self._held = False
            self._players.pool.turns.take().release()

    def _action(self, said: str) -> str | Failure:
        """Action between the tags; without tags, the last line if it is a possible action."""
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


GAME = "game.tw-pddl"

_GOAL = re.compile(r"Your task is to: ([^\"\\\n]+)")
_SOLVABLE = re.compile(r'"solvable":\s*true')
UNPLAYED = "ALFWorld does not play such games: no solution, or movable receptacles or slices"
_UNPLAYED = ("movable_recep", "Sliced")
"""Kinds of tasks that ALFWorld itself leaves out of its text games."""


@dataclass(frozen=True)
class AlfWorld(Environment):
    """ALFWorld environment: one case is one game."""

    name = "alfworld"
    data = (
        "the games of ALFWorld (github.com/alfworld/alfworld): `alfworld-download` puts them into "
        "~/.cache/alfworld/json_2.1.1, which is the `env.split_dir` of Kept's config; any other "
        "folder with train/, valid_seen/ and valid_unseen/ will do"
    )
    simulates = True

    max_steps: int = 50
    """Maximum number of actions; the game is lost after them."""
    games_at_once: int = 8
    """Maximum number of processes, about 115 MB each."""
    seconds: float = 120.0
    """Time limit for opening a game or for one action."""
    data_root: Path = Path("~/.cache/alfworld")
    """Base folder of each `gamefile` that is not beside the file of its row."""
    _players: Players = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.max_steps < 1:
            raise ValueError("`max_steps` is less than 1")
        if self.games_at_once < 1:
            raise ValueError("`games_at_once` is less than 1")
        object.__setattr__(self, "_players", Players(self.games_at_once, self.seconds))

    def needs(self) -> str:
        """Name the packages that are not installed; empty if all are."""
        lacks = [name for name in ("textworld", "alfworld") if not importlib.util.find_spec(name)]
        if not lacks:
            return ""
        return f"{' and '.join(lacks)} not installed; {install_command('alfworld')}"

    def turns(self) -> int:
        """Return `max_steps`: one turn per action."""
        return self.max_steps

    def skill(self) -> Mapping[str, str]:
        """Return the initial skill, a few lines."""
        return initial("alfworld")

    def read(self, path: Path) -> Iterable[Item]:
        """Read games below a folder, or from rows with `gamefile` as a written split has."""
        games = sorted(path.rglob(GAME)) if path.is_dir() else []
        if path.is_file() and path.name == GAME:
            games = [path]
        if games:
            found: list[Item] = []
            for game in filter(_is_played, games):
                trial, task = game.parent.name, game.parent.parent.name
                found.append(Item(Case(f"{task}/{trial}", _data(game)), f"{game}:1"))
            return found
        if path.is_dir() and not any(one.suffix in SUFFIXES for one in path.iterdir()):
            raise SetupError(f"there is no {GAME} in {path}")
        fields = Fields()
        return as_items(fields, self._rows(path, fields))

    def _rows(self, path: Path, fields: Fields) -> Iterator[Item]:
        for row in rows_in(path):
            file = fields.text(row, ("gamefile",))
            if file is None:
                continue
            places = [row.path.parent / file, self.data_root.expanduser() / file]
            game = next((one for one in places if one.is_file()), None)
            if game is None:
                hint = "`alfworld-download` gets the games; `env.data_root` is where they lie"
                fields.wrong(row, f"there is no game `{file}` in {places[1]}", hint)
                continue
            yield item(row, _data(game), prefix=Path(file).parent.name)

    def defects(self, items: Sequence[Item]) -> Iterable[Defect]:
        """Games of rows that ALFWorld would not play; `read` skips such games in folders."""
        for case, _ in items:
            if not _is_played(Path(values(case)["gamefile"])):
                yield Defect(case.id, UNPLAYED, left_out=True)

    def pose(self, case: Case) -> Posed:
        """Task of the game, as known before it is opened; `begin` adds the rest."""
        return Posed(f"Your task is to: {values(case)['goal']}")

    def begin(self, case: Case, job: Job, scope: Scope) -> Episode:
        """Return the episode of the game."""
        return Game(Path(values(case)["gamefile"]), self.max_steps, self._players)

    def grade(self, case: Case, rollout: Rollout) -> Graded | Failure:
        """Won or lost."""
        won = rollout.metrics["won"]
        steps = count(int(rollout.metrics["steps"]), "step")
        why = "" if won else f"the task is not done after {steps}: {values(case)['goal']}"
        return Graded(won, won, why, f"{'won' if won else 'lost'} after {steps}")

    def about(self, case: Case) -> About:
        """The task and its kind; there is no answer to hide."""
        data = values(case)
        return About(data["goal"], data["task_type"])

    async def close(self) -> None:
        """End the processes."""
        self._players.pool.close()


def _is_played(game: Path) -> bool:
    """False for a game that cannot be solved, or is of a kind that ALFWorld leaves out."""
    task = game.parent.parent.name
    return not any(word in task for word in _UNPLAYED) and bool(_SOLVABLE.search(_text(game)))


def _data(game: Path) -> dict[str, object]:
    text = _text(game)
    goal = _GOAL.search(text)
    return {
        "gamefile": str(game.resolve()),
        "task_type": game.parent.parent.name.partition("-")[0],
        "goal": goal[1].strip().rstrip(".") if goal else game.parent.parent.name,
        "sha256": hashlib.sha256(text.encode()).hexdigest()[:16],
    }


def _text(game: Path) -> str:
    try:
        return game.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SetupError(f"cannot read {game}: {error}") from error
