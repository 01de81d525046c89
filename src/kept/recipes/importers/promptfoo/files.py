"""Files that a config names: below its folder, by name or by pattern."""

from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import cast

from kept.spec.files import decoded, near_file
from kept.spec.globs import glob
from kept.spec.source import Source
from kept.spec.yaml import Document, Loc, read_yaml


def found_files(source: Source, loc: Loc, name: str) -> list[Path]:
    """The files that a name or a pattern means; none, and a report, where there are none."""
    if not any(sign in name for sign in "*?["):
        path = source.folder / name
        if not is_below(source, path):
            refuse_outside(source, loc, name)
            return []
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
    outside = [hit for hit in hits if not is_below(source, hit)]
    for hit in outside:
        refuse_outside(source, loc, hit.relative_to(source.folder).as_posix())
    return [hit for hit in hits if hit not in outside]


def is_below(source: Source, path: Path) -> bool:
    """Whether a file is in the config's folder, wherever links lead.

    What a config names is sent to a provider: one from elsewhere must not take what it likes.
    """
    try:
        return path.resolve().is_relative_to(source.folder.resolve())
    except (OSError, ValueError, RuntimeError):
        return False


def refuse_outside(source: Source, loc: Loc, name: str) -> None:
    """Report a file that is not below the config's folder."""
    hint = "copy it there, or put the config into the folder that holds both"
    source.report(loc, f"`{name}` is not below the folder of the config", hint)


def plain(value: object) -> object:
    """Values of YAML as JSON has them: a date is what is written."""
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, list):
        return [plain(item) for item in cast("list[object]", value)]
    if isinstance(value, dict):
        return {key: plain(one) for key, one in cast("dict[str, object]", value).items()}
    return value


def read_values(text: str) -> Document:
    """A text of YAML or JSON, its values as JSON has them; raises `YamlFault`."""
    document = read_yaml(text)
    return replace(document, data=plain(document.data))


def read_file(source: Source, loc: Loc, path: Path, limited: bool = False) -> str | None:
    """The text of a file; None, and a report, when it is none. `limited` is for what is no data."""
    try:
        return decoded(path.read_bytes(), limited).removeprefix("\ufeff")
    except OSError as error:
        source.report(loc, f"cannot read `{path.name}`: {error.strerror}")
    except ValueError as error:
        source.report(loc, f"`{path.name}` is {error}")
    return None
