"""Files that a skill names by paths inside its own folder: it is of no use without them."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from kept.errors import SetupError
from kept.recipes.importers.reading import text_of

READ = (".md", ".txt")
"""What a model can be shown; other files are run, or filled in."""

_PATH = re.compile(r"[\w.@+~%-]+(?:/[\w.@+~%-]+)*/?")
_LINK = re.compile(r"\]\(<?([^)<>\n]+?)>?(?:\s+\"[^\"\n]*\")?\)")


class Named(NamedTuple):
    """What a skill names."""

    texts: dict[str, str]
    """By paths as seen from the skill."""
    notes: list[str]


def named_files(skill: Path, text: str, taken: tuple[str, ...]) -> Named:
    """The files that a skill names, and those that its texts name in turn.

    Args:
        skill: its file, in its folder.
        text: what is in it.
        taken: names that files of the task have.
    """
    home = skill.parent.resolve()
    found = Named({}, [])
    waiting = [(skill, text)]
    seen = {skill.resolve()}
    while waiting:
        source, said = waiting.pop(0)
        for path in _paths(source, home, said):
            if path in seen:
                continue
            seen.add(path)
            note = _take(path, home, taken, found)
            if note:
                found.notes.append(note)
            elif path.suffix in READ:
                waiting.append((path, found.texts[path.relative_to(home).as_posix()]))
    return found


def _paths(source: Path, home: Path, text: str) -> Iterator[Path]:
    """Files and folders that are there and that a text names, from its place or from the skill."""
    links = (unquote(link.partition("#")[0]) for link in _LINK.findall(text))
    words = (form for word in _PATH.findall(text) for form in (word, word.rstrip(".")))
    for name in dict.fromkeys((*links, *words)):
        if not name.strip("./") or Path(name).is_absolute():
            continue
        for folder in (source.parent.resolve(), home):
            path = (folder / name).resolve()
            # a word is no folder unless it is written like one
            if path.is_file() or (name.endswith("/") and path.is_dir()):
                yield path
                break


def _take(path: Path, home: Path, taken: tuple[str, ...], found: Named) -> str:
    """Why a file is not among the texts; empty where it is."""
    if not path.is_relative_to(home):
        return f"the skill names {path.name}, which is not in its folder: it is not copied"
    name = path.relative_to(home).as_posix()
    if path.is_dir():
        return f"the skill names the folder {name}/: what no text of it names is not copied"
    if name in taken:
        return f"the skill names {name}, which the task has of its own: it is not copied"
    try:
        found.texts[name] = text_of(path)
    except SetupError as error:
        return f"{error.message}: it is not copied"
    return ""
