"""Files of a spec by pattern: search, checks, reading; and git queries.

All files must lie inside the spec's folder and be UTF-8 text. A part without a wildcard is looked
up, not searched, so a plain file name costs one lookup in any folder. Folders such as `.git`,
`.venv` and `node_modules` are entered only if a pattern names them. `**` does not follow links to
folders.

Each git query is a separate command and never changes the work tree.
"""

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from kept.core.artifact import is_safe_path
from kept.errors import SetupError
from kept.spec.source import Source
from kept.spec.yaml import Loc


def git(folder: Path, *words: str) -> bytes:
    """What git prints about the repository that a folder is in; raises what it complains of."""
    # literal: a file may be named as a pattern of others is
    command = ["git", "--literal-pathspecs", "-C", str(folder), *words]
    try:
        done = subprocess.run(command, capture_output=True, check=False)
    except FileNotFoundError as error:
        raise SetupError("there is no `git` command") from error
    if done.returncode:
        said = (done.stderr or done.stdout).decode(errors="replace").strip()
        raise SetupError(f"`git {words[0]}` failed: {said or f'exit {done.returncode}'}")
    return done.stdout


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


MAX_CHARS = 1024 * 1024
"""Bytes of one text; what is longer is data, not something to edit."""


class Alternative(NamedTuple):
    """Texts that may stand in for those of the artifacts."""

    label: str
    texts: Mapping[str, str]


def near_file(path: Path) -> str | None:
    """A file beside one that is not there, and that may be meant, as a hint."""
    names = [other.name for other in path.parent.iterdir()] if path.parent.is_dir() else []
    close = get_close_matches(path.name, names, n=3, cutoff=0.7)
    # `no.yaml` is like `agent.yaml` in nothing but its ending
    near = [name for name in close if get_close_matches(path.stem, [Path(name).stem], cutoff=0.6)]
    return f"did you mean `{near[0]}`?" if near else None


def read_artifacts(
    source: Source, include: Sequence[str], exclude: Sequence[str]
) -> dict[str, str]:
    """The text of every artifact by its path; what cannot be one is reported."""
    texts: dict[str, str] = {}
    for number, pattern in enumerate(include):
        loc = ("artifacts", "include", number)
        hits = find(source, loc, pattern, exclude)
        files = [path for path in hits if not path.is_dir()]
        if hits and not files:
            source.report(loc, f"`{pattern}` matches folders only", f"write `{pattern}/**/*`")
        for path in files:
            name = path.relative_to(source.folder).as_posix()
            if name not in texts and not is_excluded(name, exclude):
                text = read_text(source, loc, path)
                if text is not None:
                    texts[name] = text
    return texts


def read_alternatives(
    source: Source, loc: Loc, patterns: Sequence[str], artifacts: Mapping[str, str]
) -> tuple[Alternative, ...]:
    """What the patterns of a `variants` proposer match, each match one alternative.

    A file stands in for the only artifact, or for the one that has its file name. A folder stands
    in for all artifacts that have their path below it.
    """
    found: dict[str, Alternative] = {}
    for number, pattern in enumerate(patterns):
        here = (*loc, number)
        for path in find(source, here, pattern):
            label = path.relative_to(source.folder).as_posix()
            if label in found or label in artifacts:
                continue
            if path.is_dir():
                texts = _mirror(source, here, path, artifacts)
            else:
                texts = _stand_in(source, here, path, artifacts)
            if texts:
                found[label] = Alternative(label, texts)
    return tuple(found.values())


def find(source: Source, loc: Loc, pattern: str, exclude: Sequence[str] = ()) -> list[Path]:
    """What a pattern matches inside the spec's folder, sorted; nothing at all is reported."""
    if pattern.startswith(("/", "~")) or ".." in Path(pattern).parts:
        source.report(loc, f"`{pattern}` leaves the folder of {source.path.name}")
        return []
    try:
        hits = sorted(glob(source.folder, pattern, exclude))
        names = [hit.relative_to(source.folder).as_posix() for hit in hits]
        left = any(not is_excluded(name, exclude) for name in names)
        # what is excluded is looked at only to say the right thing
        if not left and exclude and (hits or glob(source.folder, pattern)):
            source.report(loc, f"all that `{pattern}` matches is excluded")
            return []
    except ValueError as error:
        source.report(loc, f"`{pattern}` is not a pattern: {error}")
        return []
    if not hits:
        near = near_file(source.folder / pattern)
        source.report(loc, f"`{pattern}` matches nothing in {source.folder}", near)
    return hits


def read_named(source: Source, loc: Loc, name: str) -> str | None:
    """The text of a file that a spec names; None, and a report, when it is none of its folder."""
    if not is_safe_path(name):
        source.report(loc, f"`{name}` is not a path below the task's folder")
        return None
    return read_text(source, loc, source.folder / name)


def read_text(source: Source, loc: Loc, path: Path) -> str | None:
    """The text of a file, its line endings as they are; None, and a report, when it is none."""
    name = path.relative_to(source.folder).as_posix()
    if not is_safe_path(name):
        # the name of a file may be bytes that no terminal can show
        printable = name.encode("utf-8", "backslashreplace").decode()
        source.report(loc, f"`{printable}` is not a name that can be carried")
        return None
    if not path.resolve().is_relative_to(source.folder.resolve()):
        source.report(loc, f"`{name}` is a link that leaves the folder")
        return None
    if path.exists() and not path.is_file():
        source.report(loc, f"`{name}` is not a plain file")
        return None
    try:
        size = path.stat().st_size
        data = path.read_bytes() if size <= MAX_CHARS else b""
    except OSError as error:
        source.report(loc, f"cannot read `{name}`: {error.strerror}")
        return None
    if size > MAX_CHARS:
        source.report(loc, f"`{name}` is too large: {size / 2**20:.1f} MiB, 1 MiB allowed")
        return None
    try:
        return decoded(data)
    except ValueError as error:
        source.report(loc, f"`{name}` is {error}")
        return None


def decoded(data: bytes, limited: bool = True) -> str:
    """The text that bytes are; a `ValueError` says what they are instead.

    `limited` is for texts that are edited: cases may be as many as there are.
    """
    if limited and len(data) > MAX_CHARS:
        raise ValueError(f"too large: {len(data) / 2**20:.1f} MiB, 1 MiB allowed")
    if b"\0" in data:
        raise ValueError("binary")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise ValueError(f"not UTF-8 text (line {line})") from None


def _stand_in(
    source: Source, loc: Loc, path: Path, artifacts: Mapping[str, str]
) -> Mapping[str, str]:
    named = [name for name in artifacts if name.rpartition("/")[2] == path.name]
    meant = list(artifacts) if len(artifacts) == 1 else named
    label = path.relative_to(source.folder).as_posix()
    if len(meant) > 1:
        source.report(loc, f"`{label}` may stand for any of {', '.join(meant)}")
    elif not meant and artifacts:
        hint = "name the file as the artifact, or match folders that mirror the artifacts' paths"
        source.report(loc, f"`{label}` stands for none of {', '.join(artifacts)}", hint)
    text = read_text(source, loc, path) if len(meant) == 1 else None
    return {} if text is None else {meant[0]: text}


def _mirror(
    source: Source, loc: Loc, folder: Path, artifacts: Mapping[str, str]
) -> Mapping[str, str]:
    texts: dict[str, str] = {}
    label = folder.relative_to(source.folder).as_posix()
    for path in sorted(p for p in glob(folder, "**/*") if p.is_file()):
        name = path.relative_to(folder).as_posix()
        if name not in artifacts:
            if artifacts:
                source.report(loc, f"`{label}/{name}` has no artifact `{name}` to stand for")
            continue
        text = read_text(source, loc, path)
        if text is not None:
            texts[name] = text
    if not texts and artifacts:
        source.report(loc, f"the folder `{label}` holds no text of any artifact")
    return texts
