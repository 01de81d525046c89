"""ALFWorld: household tasks in a world of text, played step by step in TextWorld.

A case is a game file, `game.tw-pddl`. It is read from folders as ALFWorld has them, or from rows
with `gamefile`. Each game is played in a process of its own at its own pace; no game waits for
another. Needs the extra `alfworld`.
"""

import hashlib
import importlib.util
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kept.core.case import Case
from kept.core.ports import Scope
from kept.core.rollout import Failure, Job, Rollout
from kept.core.words import count
from kept.errors import SetupError
from kept.evaluators.environments.contract import Defect, Environment, Episode, Graded, Item, Posed
from kept.evaluators.environments.fields import Fields, as_items, item, values
from kept.evaluators.environments.opened import About
from kept.evaluators.environments.playing import Game, Players
from kept.evaluators.environments.reading import SUFFIXES, Row, rows_in
from kept.evaluators.environments.skills import initial
from kept.settings import install_command

GAME = "game.tw-pddl"

_GOAL = re.compile(r"Your task is to: ([^\"\\\n]+)")
_SOLVABLE = re.compile(r'"solvable":\s*true')
UNPLAYED = "ALFWorld does not play such games: no solution, or movable receptacles or slices"
_UNPLAYED = ("movable_recep", "Sliced")
"""Kinds of tasks that ALFWorld itself leaves out of its text games."""


@dataclass(frozen=True)
class AlfWorld(Environment):
    """One game a case."""

    name = "alfworld"
    data = (
        "the games of ALFWorld (github.com/alfworld/alfworld): `alfworld-download` puts them into "
        "~/.cache/alfworld/json_2.1.1, which is the `env.split_dir` of Kept's config; any other "
        "folder with train/, valid_seen/ and valid_unseen/ will do"
    )
    simulates = True

    max_steps: int = 50
    """Actions of a game, after which it is lost."""
    games_at_once: int = 8
    """Processes, of about 115 MB each."""
    seconds: float = 120.0
    """For one game to be opened, or one action to be done."""
    data_root: Path = Path("~/.cache/alfworld")
    """Where a `gamefile` begins that does not lie beside the file of its row."""
    _players: Players = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.max_steps < 1:
            raise ValueError("`max_steps` is less than 1")
        if self.games_at_once < 1:
            raise ValueError("`games_at_once` is less than 1")
        object.__setattr__(self, "_players", Players(self.games_at_once, self.seconds))

    def needs(self) -> str:
        """Whether its packages are here."""
        lacks = [name for name in ("textworld", "alfworld") if not importlib.util.find_spec(name)]
        if not lacks:
            return ""
        return f"{' and '.join(lacks)} not installed; {install_command('alfworld')}"

    def turns(self) -> int:
        """One for every action."""
        return self.max_steps

    def skill(self) -> Mapping[str, str]:
        """A few lines to begin with."""
        return initial("alfworld")

    def read(self, path: Path) -> Iterable[Item]:
        """Games of a folder, however deep; or of rows with `gamefile`, as a written split has."""
        games = sorted(path.rglob(GAME)) if path.is_dir() else []
        if path.is_file() and path.name == GAME:
            games = [path]
        if games:
            return [one for game in games if (one := _item(game)) is not None]
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
            yield item(row, _data(game), prefix=_named(row))

    def defects(self, items: Sequence[Item]) -> Iterable[Defect]:
        """Games of rows that ALFWorld would not have played: of folders they are not read."""
        for case, _ in items:
            if not _is_played(Path(values(case)["gamefile"])):
                yield Defect(case.id, UNPLAYED, left_out=True)

    def pose(self, case: Case) -> Posed:
        """What is known before a game is opened; `begin` has the rest."""
        return Posed(f"Your task is to: {values(case)['goal']}")

    def begin(self, case: Case, job: Job, scope: Scope) -> Episode:
        """A game about to be played."""
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
        self._players.close()


def _item(game: Path) -> Item | None:
    """A game as a case; None for one that ALFWorld itself would not have played."""
    trial, task = game.parent.name, game.parent.parent.name
    if not _is_played(game):
        return None
    return Item(Case(f"{task}/{trial}", _data(game)), f"{game}:1")


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


def _named(row: Row) -> str:
    return Path(str(row.data["gamefile"])).parent.name
