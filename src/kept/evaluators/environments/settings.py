"""What a config says of an environment, whatever its spelling."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from kept.errors import Problem

SplitMode = Literal["ratio", "split_dir"]

RATIO = (2, 1, 7)
SPLIT_SEED = 42

NO_SKILL = "none"
"""Said in place of the path of a skill."""


def _nowhere(key: str) -> str:
    return "the settings"


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvSettings:
    """The section `env` of a config, with the sizes that other sections give."""

    name: str
    """Of a built-in environment or an entry point, or `module:Class`."""
    folder: Path = field(default_factory=Path.cwd)
    """Where paths begin, and where `module:Class` is looked for."""
    split_mode: SplitMode = "ratio"
    data_path: str = ""
    split_dir: str = ""
    split_ratio: tuple[int, int, int] = RATIO
    """Train, selection, test."""
    split_seed: int = SPLIT_SEED
    split_output_dir: str = ""
    """Where a split by ratio is written; by default below the outputs of a run."""
    train_size: int = 0
    """As many cases as `train` must have; 0 for any."""
    sel_env_num: int = 0
    """The first so many of the selection split; 0 for all."""
    test_env_num: int = 0
    """The first so many of the test split; 0 for all."""
    limit: int = 0
    """The first so many cases of the data, or of each part of a split; 0 for all."""
    skill_init: str = ""
    """A file or a folder to begin with, or `none`; by default the environment's own."""
    options: Mapping[str, object] = field(default_factory=dict[str, object])
    """What only this environment knows."""
    keys: tuple[str, ...] = ()
    """What the section may have besides, for whoever misspelt one of them."""
    where: Callable[[str], str] = _nowhere
    """`file:line` of a key of the section."""

    def path(self, given: str) -> Path:
        """A path of the config."""
        return self.folder / Path(given).expanduser()

    @property
    def no_skill(self) -> bool:
        """True where the student is to work without any skill."""
        return self.skill_init == NO_SKILL and not self.path(NO_SKILL).exists()

    def problem(self, key: str, message: str, hint: str | None = None) -> Problem:
        """What is wrong with a key."""
        return Problem(self.where(key), f"env.{key}" if key else "env", message, hint)


def ratio_of(text: str) -> tuple[int, int, int]:
    """The three parts of a text like `2:1:7`; a `ValueError` says what is wrong with it."""
    parts = text.split(":")
    if len(parts) != 3 or not all(part.strip().isdigit() for part in parts):
        raise ValueError(f"`{text}` is no ratio; write train:selection:test, as in 2:1:7")
    train, selection, test = (int(part) for part in parts)
    if not selection:
        raise ValueError(f"`{text}` leaves no case to decide by")
    if not train:
        raise ValueError(f"`{text}` leaves no case to learn from")
    return train, selection, test
