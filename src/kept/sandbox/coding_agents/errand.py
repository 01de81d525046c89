"""What an agent is asked to do, and what it finds where it works."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from kept.sandbox.coding_agents.cli import Cli

SKILL = "SKILL.md"
_FRONT = re.compile(r"\A---[ \t]*\r?\n(.*?)^---[ \t]*\r?$", re.DOTALL | re.MULTILINE)
_NAME = re.compile(r"^name:\s*[\"']?(.+?)[\"']?\s*$", re.MULTILINE)
_HEAD = """\
---
name: {name}
description: How the tasks of this folder are done. Read it before you begin with one.
---

"""


@dataclass(frozen=True, slots=True)
class Session:
    """A conversation of an agent that can be gone on with."""

    id: str
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Errand:
    """One task for an agent."""

    prompt: str
    files: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    """What it finds in its workspace."""
    folders: tuple[str, ...] = ()
    """Folders that it finds there, also where they are empty."""
    instructions: str = ""
    """What it always reads; empty for none."""
    skill: Mapping[str, str] = field(default_factory=dict[str, str])
    """Texts of a skill by path: the first is its SKILL.md, the others lie beside that."""
    session: Session | None = None
    """What was said before, if this is to go on from there."""


def rendered(cli: Cli, errand: Errand) -> tuple[str, dict[str, bytes]]:
    """The prompt, and the files by which a CLI finds skill and instructions."""
    files: dict[str, str] = {}
    prompt = errand.prompt
    if errand.instructions.strip():
        files[cli.instructions] = errand.instructions
    if errand.skill:
        first, text = next(iter(errand.skill.items()))
        name = skill_name(first, text)
        folder, beside = f"{cli.skills}/{name}", PurePosixPath(first).parent
        files[f"{folder}/{SKILL}"] = text if _FRONT.match(text) else _HEAD.format(name=name) + text
        for path, other in list(errand.skill.items())[1:]:
            files[f"{folder}/{_relative(path, beside)}"] = other
        # a skill that a model may leave unread would make no difference
        prompt = f"Use the skill `{name}`: read {folder}/{SKILL} first.\n\n{prompt}"
    return prompt, {path: _bytes(text) for path, text in files.items()}


def skill_name(path: str, text: str) -> str:
    """What a skill is called: by itself, else by its file or the folder that it is in."""
    front = _FRONT.match(text)
    named = _NAME.search(front[1]) if front else None
    place = PurePosixPath(path)
    plain = place.parent.name if place.name.lower() == SKILL.lower() else place.stem
    return re.sub(r"[^a-z0-9]+", "-", (named[1] if named else plain).lower()).strip("-") or "skill"


def _relative(path: str, folder: PurePosixPath) -> str:
    place = PurePosixPath(path)
    return str(place.relative_to(folder) if place.is_relative_to(folder) else place)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
