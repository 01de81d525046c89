"""Artifacts, candidates, protected regions, and locators of values inside a text.

An `Artifact` is a named text with its rules; `Rules` are the rules of a run. A `Candidate` is the
frozen content of all artifacts. Nothing here reads or writes files.

Protected regions keep their text, their number and their order under every edit.

A `Locator` returns the span of a named value. Setting the value changes only those characters, so
comments, order and spacing stay. The locator here knows `key = value` and `key: value` lines;
recipes that edit nested formats bring their own.
"""

import hashlib
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Literal

_END_OF_LINE = re.compile(r"[ \t]*\n?")


def uncommented(text: str) -> str:
    """A text of Markdown as who works by it reads it: without comments, such as markers."""
    # no pattern: each comment that is never closed would cost one more pass over the text
    parts: list[str] = []
    at = 0
    while (start := text.find("<!--", at)) >= 0 and (end := text.find("-->", start + 4)) >= 0:
        parts.append(text[at:start])
        rest = _END_OF_LINE.match(text, end + 3)
        at = rest.end() if rest else end + 3
    return "".join((*parts, text[at:])).strip()


@dataclass(frozen=True, slots=True)
class Region:
    """From one marker to the next other one, markers included."""

    begin: str
    end: str

    def __str__(self) -> str:
        return f"inside `{self.begin}` … `{self.end}`"

    def stretches(self, text: str) -> list[str]:
        """Every such stretch of a text."""
        found: list[str] = []
        at = 0
        while (start := text.find(self.begin, at)) >= 0:
            stop = text.find(self.end, start + len(self.begin))
            # a region that never closes protects the rest of the text
            at = len(text) if stop < 0 else stop + len(self.end)
            found.append(text[start:at])
        return found

    def touched(self, before: str, after: str) -> bool:
        """True if a change of a text touches one of these stretches."""
        # a loose end marker protects nothing by itself, but who reads the file may stop at it
        loose = before.count(self.end) != after.count(self.end)
        return loose or self.stretches(before) != self.stretches(after)


@dataclass(frozen=True, slots=True)
class Heading:
    """A section of Markdown, from its heading to the next one that is not below it."""

    title: str

    def __str__(self) -> str:
        return f"the section `{self.title}`"

    def stretches(self, text: str) -> list[str]:
        """Every section of this title, without the space behind it."""
        from kept.core.text import section_texts  # slow to import, and seldom needed

        return [section.rstrip() for section in section_texts(text, self.title)]

    def touched(self, before: str, after: str) -> bool:
        """True if a change of a text touches one of these sections."""
        return self.stretches(before) != self.stretches(after)


Protected = Region | Heading


@dataclass(frozen=True, slots=True)
class Artifact:
    """A named text the run may change."""

    path: str
    """Relative, with forward slashes."""
    protected: tuple[Protected, ...] = ()
    """Parts that no edit may touch."""
    max_chars: int | None = None


@dataclass(frozen=True, slots=True)
class Rules:
    """Scope and size limits of edits."""

    artifacts: Mapping[str, Artifact]
    new_files: tuple[str, ...] = ()
    """Patterns of paths that a `Write` may create; none by default."""
    max_files: int | None = None
    """Artifacts that one proposal may change."""
    max_changed_lines: int | None = None
    """Lines removed plus lines added by one proposal."""
    file_types: tuple[str, ...] = ()
    """Endings of paths that may be edited, where a task limits them."""

    def allows(self, path: str) -> bool:
        """True if an edit of this path is inside the scope of the run."""
        if path in self.artifacts:
            return True
        return is_safe_path(path) and any(fnmatchcase(path, glob) for glob in self.new_files)

    def refusal(self, path: str, known: Collection[str]) -> str:
        """Reason to refuse an edit of a path that is no artifact; `known` are the files there."""
        if path in known and self.file_types and not path.endswith(self.file_types):
            types = ", ".join(self.file_types)
            return f"`{path}` is not of a type that `allowed_file_types` lists ({types})"
        return f"`{path}` is outside the artifacts"

    def find(self, path: str, known: Collection[str] = (), *, whole: bool = False) -> str:
        """Artifact that a path means, or the path itself where it means none.

        `/text` and `./text` mean `text`, an empty path the only artifact. Another path means the
        artifact with its file name, where that is unique. `known` are files that are no artifacts;
        their paths mean themselves. With `whole`, the shorter path must be the end of the longer
        one: an edit that replaces a whole file must not hit another file.
        """
        if self.allows(path):
            return path
        plain = "/".join(part for part in path.strip().split("/") if part not in ("", "."))
        if not plain and len(self.artifacts) == 1:
            return next(iter(self.artifacts))
        if plain in known or self.allows(plain):
            return plain
        if not is_safe_path(plain):
            return path
        name = plain.rpartition("/")[2]
        hits = [one for one in self.artifacts if one.rpartition("/")[2] == name]
        if len(hits) != 1:
            return path
        short, long = sorted((plain, hits[0]), key=len)
        return path if whole and not f"/{long}".endswith(f"/{short}") else hits[0]


MAX_PATH_BYTES = 1024
"""Bytes of a path below a folder; with the folder it has to stay below the system's 4,096."""

MAX_NAME_BYTES = 240
"""Bytes of a name in it; file systems take 255, and a file is first written under a longer one."""


def is_safe_path(path: str) -> bool:
    """True for a path that stays inside the folder it is relative to, and that a file can have."""
    if not path or path.startswith("/") or "\\" in path or "\0" in path:
        return False
    parts = path.split("/")
    inside = all(part not in ("", ".", "..") for part in parts) and ":" not in parts[0]
    return inside and _can_be_written(parts)


def _can_be_written(parts: Sequence[str]) -> bool:
    try:
        sizes = [len(part.encode("utf-8", "surrogateescape")) for part in parts]
    except UnicodeEncodeError:
        # half a character
        return False
    return max(sizes) <= MAX_NAME_BYTES and sum(sizes) + len(sizes) <= MAX_PATH_BYTES


@dataclass(frozen=True, slots=True)
class Candidate:
    """One snapshot of all artifacts; equal content means equal id, whatever made it."""

    texts: Mapping[str, str]
    blobs: Mapping[str, str] = field(default_factory=dict[str, str])
    """Files that are carried but never edited: path to sha256 of their bytes."""
    id: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "id", _content_id(self.texts, self.blobs))

    @property
    def text(self) -> str:
        """The text of a candidate that has just one."""
        if len(self.texts) != 1:
            names = sorted(self.texts)
            one = f", as in candidate[{names[0]!r}]" if names else ""
            told = f"the candidate has {len(names)} texts ({', '.join(names)}): name one{one}"
            raise ValueError(told)
        (text,) = self.texts.values()
        return text

    def __str__(self) -> str:
        """The text of a candidate that has just one, so that `f"{candidate}"` is a prompt."""
        return self.text

    def __format__(self, spec: str) -> str:
        return format(self.text, spec)

    def copied(self) -> "Candidate":
        """The same, for one who may change its texts: nobody else gets to see that."""
        copy = _blank(Candidate)
        # not by its own way to be made, which hashes every text: each rollout needs one
        _set_texts(copy, {**self.texts})
        _set_blobs(copy, {**self.blobs})
        _set_id(copy, self.id)
        return copy

    def __getitem__(self, path: str) -> str:
        return self.texts[path]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Candidate) and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)


_blank = object.__new__
_set_texts, _set_blobs, _set_id = (
    Candidate.__dict__[name].__set__ for name in ("texts", "blobs", "id")
)


def _content_id(texts: Mapping[str, str], blobs: Mapping[str, str]) -> str:
    digest = hashlib.sha256()
    for tag, files in (("text", texts), ("blob", blobs)):
        for path in sorted(files):
            # lengths go in, so that moving a character between path and content changes the id;
            # surrogateescape text is legal in a candidate and must hash too
            body = files[path].encode("utf-8", "surrogateescape")
            name = path.encode("utf-8", "surrogateescape")
            digest.update(f"{tag} {len(name)} {len(body)}\n".encode())
            digest.update(name)
            digest.update(body)
    return digest.hexdigest()[:16]


Value = str | int | float | bool


@dataclass(frozen=True, slots=True)
class Span:
    """A value found: where it stands, and how a new one is to be written there."""

    start: int
    end: int
    render: Callable[[Value], str]


@dataclass(frozen=True, slots=True)
class NoSpan:
    """A value not found, and why."""

    why: Literal["target missing", "ambiguous"]
    detail: str


Locator = Callable[[str, str, str], Span | NoSpan]
"""(path, text, key) to the span of the key's value."""

# A comment needs a space before its `#`, as in YAML. In Python a name may carry its type, and an
# argument ends in a comma.
_VALUE = r"""(?P<value>"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|[^\s#](?:[^#\n]|(?<=\S)\#)*?|)"""
_REST = r"[ \t]*(?:(?<=\s)\#[^\n]*)?\r?$"
_LINE = re.compile(rf"^[ \t]*(?P<key>[\w.\-]+)[ \t]*[=:][ \t]*{_VALUE}{_REST}", re.MULTILINE)
_PYTHON_LINE = re.compile(
    rf"^[ \t]*(?P<key>\w+)[ \t]*(?::[^=#\n]+)?=(?!=)[ \t]*{_VALUE},?{_REST}", re.MULTILINE
)


def locate_line_value(path: str, text: str, key: str) -> Span | NoSpan:
    """Find `key = value` or `key: value`, standing on a line of its own, exactly once."""
    python = path.endswith(".py")
    pattern = _PYTHON_LINE if python else _LINE
    found = [match for match in pattern.finditer(text) if match["key"] == key]
    if not found:
        return NoSpan("target missing", f"no line `{key} = …` or `{key}: …` in {path}")
    if len(found) > 1:
        lines = ", ".join(str(text.count("\n", 0, match.start()) + 1) for match in found)
        return NoSpan("ambiguous", f"`{key}` stands on lines {lines} of {path}")
    start, end = found[0].span("value")
    quote = text[start] if start < end and text[start] in "\"'" else ""
    # an empty value brings the space that keeps it from its colon and from the comment behind it
    before = " " if start == end and text[start - 1] == ":" else ""
    after = " " if start == end and text[start : start + 1] == "#" else ""
    style = "title" if python else "lower"

    def render(value: Value) -> str:
        return before + render_value(value, quote=quote, booleans=style) + after

    return Span(start, end, render)


def render_value(
    value: Value, *, quote: str = "", booleans: Literal["title", "lower"] = "lower"
) -> str:
    """Write a value as the text around it would."""
    if isinstance(value, bool):
        return str(value) if booleans == "title" else str(value).lower()
    if isinstance(value, str):
        return _render_text(value, quote)
    shown = repr(value)
    # YAML 1.1 reads `1e-05` as a word, and `1.0e-05` as the number it is
    return shown.replace("e", ".0e") if "e" in shown and "." not in shown else shown


def _render_text(value: str, quote: str) -> str:
    """A text that stays on its line and reads back as it is, where quotes can do that."""
    plain = value == value.strip() and not value.startswith(("#", '"', "'")) and " #" not in value
    if quote == "'" and "'" not in value and "\\" not in value and value.isprintable():
        return f"'{value}'"
    if quote == "" and plain and not any(c in value for c in "\r\n"):
        return value
    for raw, escaped in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t")):
        value = value.replace(raw, escaped)
    return f'"{value}"'
