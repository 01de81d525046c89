"""The skills that environments begin with, one Markdown file each; and skills of a user's."""

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

from kept.envs.opened import SKILL
from kept.envs.settings import EnvSettings
from kept.errors import SpecError

MAX_FILES = 200
"""Files of a skill; a folder with more is no skill."""


def initial(name: str) -> Mapping[str, str]:
    """The skill of a built-in environment."""
    return {SKILL: files(__name__).joinpath(f"{name}.md").read_text(encoding="utf-8")}


def skill_at(path: Path, settings: EnvSettings) -> Mapping[str, str]:
    """A skill of a user's: a file, or a folder with a SKILL.md."""
    if path.is_file():
        return {SKILL: _text(path, settings)}
    if not (path / SKILL).is_file():
        message = f"there is no skill in {path}" if path.is_dir() else f"there is no {path}"
        hint = f"give a file, or a folder with a {SKILL}"
        raise SpecError([settings.problem("skill_init", message, hint)])
    found = sorted(one for one in path.rglob("*") if one.is_file())
    if len(found) > MAX_FILES:
        message = f"{path} has {len(found)} files, over {MAX_FILES}"
        raise SpecError([settings.problem("skill_init", message)])
    found.sort(key=lambda one: one != path / SKILL)
    return {one.relative_to(path).as_posix(): _text(one, settings) for one in found}


def _text(path: Path, settings: EnvSettings) -> str:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        why = "it is no UTF-8 text" if isinstance(error, UnicodeDecodeError) else error.strerror
        problem = settings.problem("skill_init", f"cannot read {path}: {why}")
        raise SpecError([problem]) from error
