"""Patterns of paths, matched without looking further than they reach.

A part without a wildcard is looked up and not searched for, so a pattern that names a file costs
one look however large the folder is. Folders that are not somebody's own text (`.git`, `.venv`,
`node_modules` ...) are entered only when a pattern names them. Links to folders are not followed by
`**`.
"""

import os
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

NEVER = {".kept", ".git"}
"""Not even when they are named: no run may touch its own journal, or the history."""

UNLESS_NAMED = {
    *(".venv", "venv", "node_modules", "__pycache__", ".tox", ".nox", ".mypy_cache"),
    *(".ruff_cache", ".pytest_cache", ".hg", ".svn", ".cache"),
}

Parts = tuple[str, ...]


def glob(folder: Path, pattern: str, exclude: Sequence[str] = ()) -> set[Path]:
    """What a pattern matches below a folder; an excluded folder is not entered.

    `**` is any number of folders, and at the end of a pattern everything below; other wildcards
    match inside one part of a path. Raises `ValueError` for what is no pattern.
    """
    parts = _parts(pattern)
    without = [_parts(one) for one in exclude]
    found: set[Path] = set()
    for parts_ in (parts, (*parts, "*")) if parts[-1] == "**" else (parts,):
        for name in _expand(folder, (), parts_, without):
            found.add(folder.joinpath(*name))
    found.discard(folder)
    return found


def matches(path: str, pattern: str) -> bool:
    """Whether a file of this path is what a pattern finds, were it in the folder."""
    parts, wanted = tuple(path.split("/")), _parts(pattern)
    closed = NEVER | (UNLESS_NAMED - set(wanted))
    return not closed.intersection(parts) and _matches(wanted, parts)


def is_excluded(path: str, exclude: Sequence[str]) -> bool:
    """Whether a path, or a folder that it is in, is matched by one of these patterns."""
    parts = tuple(path.split("/"))
    return any(_covers(_parts(pattern), parts) for pattern in exclude)


def _parts(pattern: str) -> Parts:
    parts = tuple(part for part in pattern.split("/") if part not in ("", "."))
    if not parts:
        raise ValueError("it is empty")
    if any("**" in part and part != "**" for part in parts):
        raise ValueError("`**` can only be an entire part of a path")
    return parts


def _covers(pattern: Parts, path: Parts) -> bool:
    return any(_matches(pattern, path[:size]) for size in range(1, len(path) + 1))


def _matches(pattern: Parts, path: Parts) -> bool:
    if not pattern:
        return not path
    if pattern[0] == "**":
        # at the end it stands for what is below, not for the folder itself
        if len(pattern) == 1:
            return bool(path)
        return any(_matches(pattern[1:], path[at:]) for at in range(len(path) + 1))
    return bool(path) and fnmatchcase(path[0], pattern[0]) and _matches(pattern[1:], path[1:])


def _expand(folder: Path, at: Parts, pattern: Parts, exclude: Sequence[Parts]) -> Iterator[Parts]:
    """The paths that a pattern matches, from a place below the folder on."""
    if not pattern:
        yield at
        return
    part, rest = pattern[0], pattern[1:]
    here = folder.joinpath(*at)
    if part == "**":
        yield from _expand(folder, at, rest, exclude)
        for entry in _entries(here):
            below = (*at, entry.name)
            if entry.is_dir(follow_symlinks=False) and _is_entered(below, exclude):
                yield from _expand(folder, below, pattern, exclude)
    elif any(sign in part for sign in "*?["):
        for entry in _entries(here):
            below = (*at, entry.name)
            # wildcards mean hidden files too, as they do for pathlib
            if fnmatchcase(entry.name, part) and (
                not entry.is_dir() or _is_entered(below, exclude)
            ):
                yield from _expand(folder, below, rest, exclude)
    elif part not in NEVER and os.path.lexists(here / part):
        yield from _expand(folder, (*at, part), rest, exclude)


def _is_entered(path: Parts, exclude: Sequence[Parts]) -> bool:
    if path[-1] in NEVER | UNLESS_NAMED:
        return False
    # `work/**` leaves out all of `work`, so there is nothing to see in it
    return not any(_covers(p[:-1] if p[-1] == "**" and len(p) > 1 else p, path) for p in exclude)


def _entries(folder: Path) -> list["os.DirEntry[str]"]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except (NotADirectoryError, FileNotFoundError, PermissionError):
        return []
