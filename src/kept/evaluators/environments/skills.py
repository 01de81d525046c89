"""The skills that environments begin with, one Markdown file each; and skills of a user's."""

from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from kept.errors import SpecError
from kept.evaluators.environments.opened import SKILL
from kept.evaluators.environments.settings import EnvSettings

MAX_FILES = 200
"""Files of a skill; a folder with more is no skill."""

CACHE = "__pycache__"
"""What running a script leaves beside it."""

_SKILLS = files("kept.evaluators.environments").joinpath("skills")


class Read(NamedTuple):
    """A skill of a user's."""

    texts: Mapping[str, str]
    left_out: tuple[str, ...] = ()
    """Files of its folder that are no texts: pictures, documents to fill in."""


def initial(name: str) -> Mapping[str, str]:
    """The skill of a built-in environment."""
    return {SKILL: _SKILLS.joinpath(f"{name}.md").read_text(encoding="utf-8")}


def skill_at(path: Path, settings: EnvSettings) -> Read:
    """A skill of a user's: a file, or a folder with a SKILL.md."""
    if path.is_file():
        return Read({SKILL: _text(path, settings)})
    if not (path / SKILL).is_file():
        message = f"there is no skill in {path}" if path.is_dir() else f"there is no {path}"
        hint = f"give a file, or a folder with a {SKILL}"
        raise SpecError([settings.problem("skill_init", message, hint)])
    found = sorted(_files(path), key=lambda one: (one != path / SKILL, one))
    if len(found) > MAX_FILES:
        message = f"{path} has {len(found)} files, over {MAX_FILES}"
        raise SpecError([settings.problem("skill_init", message)])
    names = {one: one.relative_to(path).as_posix() for one in found}
    binary = [one for one in found[1:] if _is_binary(one)]
    texts = {names[one]: _text(one, settings) for one in found if one not in binary}
    return Read(texts, tuple(names[one] for one in binary))


def _files(folder: Path) -> Iterator[Path]:
    """Those of a skill: what is hidden, or was left by a run of its scripts, is none."""
    for one in folder.rglob("*"):
        parts = one.relative_to(folder).parts
        if one.is_file() and not any(part.startswith(".") or part == CACHE for part in parts):
            yield one


def _is_binary(path: Path) -> bool:
    try:
        path.read_bytes().decode()
    except UnicodeDecodeError:
        return True
    except OSError:
        return False  # which is told by whoever reads it
    return False


def _text(path: Path, settings: EnvSettings) -> str:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        why = "it is no UTF-8 text" if isinstance(error, UnicodeDecodeError) else error.strerror
        problem = settings.problem("skill_init", f"cannot read {path}: {why}")
        raise SpecError([problem]) from error
