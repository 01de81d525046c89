"""Configs of skills, as who trains reads them: what is wrong with one is an error."""

from collections.abc import Sequence
from pathlib import Path

from kept.recipes.skill import read
from kept.recipes.skill.read import SkillSpec


def sound_skill(path: Path, overrides: Sequence[str] = (), folder: Path | None = None) -> SkillSpec:
    """The config at a path; a `SpecError` with all that is wrong with it."""
    made = read.read_skill(path, overrides, folder)
    made.source.check()
    return made
