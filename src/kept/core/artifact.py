"""What may change, and one frozen snapshot of it.

An `Artifact` is a named text with its rules; `Rules` are the rules of a run; a `Candidate` is the
content of all artifacts at once. Nothing here reads or writes files.
"""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from kept.core.protect import Protected


@dataclass(frozen=True, slots=True)
class Artifact:
    """A named text the run may change."""

    path: str
    """Relative, with forward slashes."""
    protected: tuple[Protected, ...] = ()
    """What no edit may touch."""
    max_chars: int | None = None


@dataclass(frozen=True, slots=True)
class Rules:
    """What an edit may touch, and how much of it."""

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
        """Whether an edit of this path is inside the scope of the run."""
        if path in self.artifacts:
            return True
        return is_safe_path(path) and any(fnmatchcase(path, glob) for glob in self.new_files)

    def refusal(self, path: str, known: Collection[str]) -> str:
        """Why an edit of a path that is no artifact's is refused; `known` are the files there."""
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
        if len(hits) != 1 or (whole and not _is_end(plain, hits[0])):
            return path
        return hits[0]


def _is_end(one: str, other: str) -> bool:
    """True if the shorter of two paths is the end of the longer one."""
    short, long = sorted((one, other), key=len)
    return f"/{long}".endswith(f"/{short}")


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
