"""Files that a config names: below its folder, by name or by pattern."""

from pathlib import Path

from kept.spec.files import decoded, near_file
from kept.spec.globs import glob
from kept.spec.source import Source
from kept.spec.yaml import Loc

FILE = "file://"


def found_files(source: Source, loc: Loc, name: str) -> list[Path]:
    """The files that a name or a pattern means; none, and a report, where there are none."""
    if not any(sign in name for sign in "*?["):
        path = source.folder / name
        if path.is_file():
            return [path]
        source.report(loc, f"there is no file `{name}`", near_file(path))
        return []
    try:
        hits = sorted(hit for hit in glob(source.folder, name.removeprefix("./")) if hit.is_file())
    except ValueError as error:
        source.report(loc, f"`{name}` is not a pattern: {error}")
        return []
    if not hits:
        source.report(loc, f"`{name}` matches no file")
    return hits


def read_file(source: Source, loc: Loc, path: Path) -> str | None:
    """The text of a file; None, and a report, when it is none."""
    try:
        return decoded(path.read_bytes()).removeprefix("\ufeff")
    except OSError as error:
        source.report(loc, f"cannot read `{path.name}`: {error.strerror}")
    except ValueError as error:
        source.report(loc, f"`{path.name}` is {error}")
    return None
