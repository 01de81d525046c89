"""Files of a spec by pattern: search, checks, reading; and git queries.

All files must lie inside the spec's folder and be UTF-8 text. A part without a wildcard is looked
up, not searched, so a plain file name costs one lookup in any folder. Folders such as `.venv` and
`node_modules` are entered only if a pattern names them, `.git` and `.kept` never. `**` does not
follow links to folders.

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
    """Run git in a folder and return its output; raises `SetupError` with its error message."""
    # literal: a file name may look like a pattern
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
"""Never matched, even if named: no run may touch its own journal or git's history."""

UNLESS_NAMED = {
    *(".venv", "venv", "node_modules", "__pycache__", ".tox", ".nox", ".mypy_cache"),
    *(".ruff_cache", ".pytest_cache", ".hg", ".svn", ".cache"),
}

Parts = tuple[str, ...]


def glob(folder: Path, pattern: str, exclude: Sequence[str] = ()) -> set[Path]:
    """Find what a pattern matches below a folder; excluded folders are not entered.

    `**` matches any number of folders, and at the end of a pattern everything below. Other
    wildcards match inside one part of a path. Raises `ValueError` for an invalid pattern.
    """
    parts = _parts(pattern)
    without = [_parts(one) for one in exclude]
    found: set[Path] = set()
    # `a/**` by itself finds folders only, `a/**/*` the files in them
    for parts_ in (parts, (*parts, "*")) if parts[-1] == "**" else (parts,):
        for name in _expand(folder, (), parts_, without):
            found.add(folder.joinpath(*name))
    found.discard(folder)
    return found


def matches(path: str, pattern: str) -> bool:
    """True if `glob` with this pattern would find a file of this path."""
    parts, wanted = tuple(path.split("/")), _parts(pattern)
    closed = NEVER | (UNLESS_NAMED - set(wanted))
    return not closed.intersection(parts) and _matches(wanted, parts)


def is_excluded(path: str, exclude: Sequence[str]) -> bool:
    """True if one of the patterns matches a path or a folder above it."""
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
        # at the end it matches what is below the folder, not the folder itself
        if len(pattern) == 1:
            return bool(path)
        return any(_matches(pattern[1:], path[at:]) for at in range(len(path) + 1))
    return bool(path) and fnmatchcase(path[0], pattern[0]) and _matches(pattern[1:], path[1:])


def _expand(folder: Path, at: Parts, pattern: Parts, exclude: Sequence[Parts]) -> Iterator[Parts]:
    """Yield the paths that the rest of a pattern matches, from `at` below the folder on."""
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
            # wildcards match hidden files too, as in pathlib
            if fnmatchcase(entry.name, part) and (
                not entry.is_dir() or _is_entered(below, exclude)
            ):
                yield from _expand(folder, below, rest, exclude)
    elif part not in NEVER and os.path.lexists(here / part):
        yield from _expand(folder, (*at, part), rest, exclude)


def _is_entered(path: Parts, exclude: Sequence[Parts]) -> bool:
    if path[-1] in NEVER | UNLESS_NAMED:
        return False
    # `work/**` excludes all of `work`, so it need not be entered
    return not any(_covers(p[:-1] if p[-1] == "**" and len(p) > 1 else p, path) for p in exclude)


def _entries(folder: Path) -> list["os.DirEntry[str]"]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except (NotADirectoryError, FileNotFoundError, PermissionError):
        return []


MAX_CHARS = 1024 * 1024
"""Maximum bytes of one text; longer files are data, not texts to edit."""


class Alternative(NamedTuple):
    """Texts that may replace those of the artifacts."""

    label: str
    texts: Mapping[str, str]


def near_file(path: Path) -> str | None:
    """Hint at an existing file with a name similar to that of a missing file."""
    names = [other.name for other in path.parent.iterdir()] if path.parent.is_dir() else []
    close = get_close_matches(path.name, names, n=3, cutoff=0.7)
    # stems must be similar too: `no.yaml` and `agent.yaml` share only the suffix
    near = [name for name in close if get_close_matches(path.stem, [Path(name).stem], cutoff=0.6)]
    return f"did you mean `{near[0]}`?" if near else None


def read_artifacts(
    source: Source, include: Sequence[str], exclude: Sequence[str]
) -> dict[str, str]:
    """Read all artifacts, by path; reports files that cannot be artifacts."""
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
    """Read the alternatives that a `variants` proposer's patterns match, one for each match.

    A file replaces the only artifact, or the one with the same file name. A folder replaces all
    artifacts whose path exists below it.
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
    """Find what a pattern matches inside the spec's folder, sorted; reports if nothing does."""
    if pattern.startswith(("/", "~")) or ".." in Path(pattern).parts:
        source.report(loc, f"`{pattern}` leaves the folder of {source.path.name}")
        return []
    try:
        hits = sorted(glob(source.folder, pattern, exclude))
        names = [hit.relative_to(source.folder).as_posix() for hit in hits]
        left = any(not is_excluded(name, exclude) for name in names)
        # search without `exclude` only to choose the right message
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
    """Read a text file that a spec names; None, and a report, if it is not inside the folder."""
    if not is_safe_path(name):
        source.report(loc, f"`{name}` is not a path below the task's folder")
        return None
    return read_text(source, loc, source.folder / name)


def read_text(source: Source, loc: Loc, path: Path) -> str | None:
    """Read a text file, line endings unchanged; None, and a report, if that is not possible."""
    name = path.relative_to(source.folder).as_posix()
    if not is_safe_path(name):
        # a file name may hold bytes that are not UTF-8
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
    """Decode bytes as UTF-8 text; `ValueError` for data that are too large, binary or invalid.

    `limited` applies the size limit of editable texts; files of cases may be larger.
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
