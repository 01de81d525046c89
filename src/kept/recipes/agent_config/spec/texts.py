"""The texts that an agent.yaml names: from a candidate where it has them, else from the disk."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from kept.core.artifact import is_safe_path
from kept.errors import Problem
from kept.spec.files import near_file
from kept.spec.source import Source, shown
from kept.spec.yaml import Loc, YamlFault, read_yaml


@dataclass(frozen=True, slots=True)
class Instructions:
    """What an agent is told before anything else, and what is said about that text."""

    text: str
    version: str
    """As its head says, else made of its content."""
    about: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Author, description, tags and what else the head says."""


class Texts:
    """Reads files by the names that an agent.yaml has for them."""

    def __init__(self, source: Source, given: Mapping[str, str]) -> None:
        self._source = source
        self._given = given
        self.read: dict[str, str] = {}
        """Those inside the folder, by their relative paths."""

    def get(self, loc: Loc, name: str) -> str | None:
        """The text of a file; None, and a report, where it cannot be had."""
        path = clean(name)
        text = self._given[path] if path in self._given else self._from_disk(loc, name)
        if text is not None and is_safe_path(path):
            self.read[path] = text
        return text

    def _from_disk(self, loc: Loc, name: str) -> str | None:
        path = self._source.folder / name
        try:
            return path.read_text(encoding="utf-8-sig")
        except OSError as error:
            hint = None if path.exists() else near_file(path)
            self._source.report(loc, f"cannot read `{name}`: {error.strerror}", hint)
        except UnicodeDecodeError:
            self._source.report(loc, f"`{name}` is not UTF-8 text")
        return None


def clean(name: str) -> str:
    """A path without what it does not need: `./a.md` is `a.md`."""
    return Path(name).as_posix()


def check_there(source: Source, loc: Loc, name: str, *, folder: bool = False) -> None:
    """Report a file that is named and is not there; `folder` says that it may be one."""
    path = source.folder / name
    if folder and any(sign in name for sign in "*?["):
        if not any(source.folder.glob(name)):
            source.report(loc, f"`{name}` matches nothing")
    elif not path.exists():
        source.report(loc, f"there is no file `{name}`", near_file(path))
    elif path.is_dir() and not folder:
        source.report(loc, f"`{name}` is a folder, where a file was expected")


def instructions_of(source: Source, name: str, text: str) -> Instructions:
    """The text of a file without its head; a head that is not YAML is reported."""
    head, body = _split(text)
    about: dict[str, Any] = {}
    if head is not None:
        try:
            data = read_yaml(head).data
        except YamlFault as fault:
            where = f"{shown(source.folder / name)}:{fault.line + 1}"
            source.problems.append(
                Problem(where, "", f"the head is not YAML: {fault.message}", fault.hint)
            )
            data = {}
        if isinstance(data, dict):
            about = cast("dict[str, Any]", data)
        else:
            # prose between two rules
            body = text
    version = about.pop("version", None)
    return Instructions(body, _auto(body) if version is None else str(version), about)


def inline_of(text: str) -> Instructions:
    """A text that stands in the agent.yaml itself."""
    return Instructions(text, _auto(text))


def _split(text: str) -> tuple[str | None, str]:
    """What stands between two lines of dashes at the top, and the rest."""
    lines = text.splitlines(keepends=True)
    if not lines or lines[0].rstrip() != "---":
        return None, text
    for number, line in enumerate(lines[1:], 1):
        if line.rstrip() == "---":
            return "".join(lines[1:number]), "".join(lines[number + 1 :]).lstrip("\r\n")
    return None, text


def _auto(text: str) -> str:
    return f"auto-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
