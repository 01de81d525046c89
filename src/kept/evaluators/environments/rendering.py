"""A skill as a chat model reads it.

SKILL.md comes first, the other files of a skill folder follow with their paths. Comments of
Markdown are for people and proposers: markers of protected regions are no part of what is learnt.
"""

from collections.abc import Mapping
from functools import lru_cache

from kept.core.protect import uncommented
from kept.evaluators.environments.opened import SKILL


def skill_text(texts: Mapping[str, str]) -> str:
    """All of a skill as one text."""
    return _whole(tuple(texts.items()))


@lru_cache(maxsize=64)
def _whole(texts: tuple[tuple[str, str], ...]) -> str:
    parts: list[str] = []
    # a folder may be spelt in any order, and is one skill
    for path, text in sorted(texts, key=lambda row: (row[0] != SKILL, row[0])):
        # in a template or a script such a comment may be what matters
        plain = uncommented(text) if path.endswith(".md") else text.strip()
        if plain:
            parts.append(plain if path == SKILL else f"## File: {path}\n\n{plain}")
    return "\n\n".join(parts)


def system_prompt(system: str, texts: Mapping[str, str]) -> str:
    """What is always said, and the skill."""
    skill = skill_text(texts)
    told = f"# Skill\n\n{skill}" if skill else ""
    return "\n\n".join(part for part in (system.strip(), told) if part)
