"""Skill-aware reflection: a defect of the skill is an edit, a lapse of its reader is a reminder.

Pure. Reminders stand in a protected appendix: only code writes there. Two that say the same in
other letters or signs are one.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from kept.recipes.skill.document import APPENDIX, region_text, without_markers
from kept.recipes.skill.proposers.modes import Source

Sources = Literal["failure_only", "both"]

TITLE = "## Reminders"

_SIGNS = re.compile(r"[^\w\s]+")


@dataclass(frozen=True, slots=True)
class Lapses:
    """How they are told apart."""

    sources: Sources = "both"
    threshold: int = 0
    """Reminders that may stand there before they are put together; 0 for any number."""

    def asks(self, source: Source) -> bool:
        """Whether analysts of this kind are asked for reminders."""
        return source == "failure" or self.sources == "both"


def key_of(note: str) -> str:
    """What two spellings of one reminder have in common."""
    return " ".join(_SIGNS.sub(" ", note.casefold()).split())


def fresh_notes(notes: Iterable[str], known: Iterable[str]) -> list[str]:
    """Those that say something new, in order, each in one line."""
    seen = {key_of(note) for note in known}
    found: list[str] = []
    for note in notes:
        line = " ".join(without_markers(note).split()).lstrip("-* ")
        key = key_of(line)
        if key and key not in seen:
            seen.add(key)
            found.append(line)
    return found


def notes_in(skill: str) -> list[str]:
    """The reminders that a skill has."""
    lines = region_text(skill, APPENDIX).splitlines()
    return [line.removeprefix("- ").strip() for line in lines if line.startswith("- ")]


def appendix_text(notes: Sequence[str]) -> str:
    """What stands in the appendix."""
    return "\n".join([TITLE, *(f"- {note}" for note in notes)])


def noted(patches: Iterable[Mapping[str, Any]]) -> list[str]:
    """The reminders of a step, each once."""
    return fresh_notes((n for patch in patches for n in patch.get("appendix_notes", ())), ())
