"""The files that a spec names by pattern: found, checked, read.

Everything stays inside the spec's folder, and everything is UTF-8 text.
"""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple

from kept.core.artifact import is_safe_path
from kept.spec.globs import glob, is_excluded
from kept.spec.source import Source
from kept.spec.yaml import Loc

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
