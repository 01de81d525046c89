"""What a person means by A and B: a file, a folder, or a revision of git, as texts of artifacts.

A file stands for the only artifact, or for the one of its name; the others are as in the task. In a
folder the task's patterns are looked for, as if it were the task's own, or the one that all
artifacts are in. `REV` is that revision of the task's folder, `REV:PATH` a file or folder of it, as
git spells it. Nothing is checked out.
"""

import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kept.errors import SetupError
from kept.recipes.compare.comparing import Version
from kept.recipes.task.reading import ReadTask
from kept.spec.files import MAX_CHARS, decoded
from kept.spec.git import git
from kept.spec.globs import glob, is_excluded, matches

PLAIN = ("100644", "100755")
"""Modes of entries in a git tree that are files, and neither links nor repositories."""


class Tree(Protocol):
    """Files below a place."""

    def find(self, pattern: str, exclude: Sequence[str]) -> set[str]:
        """The names of those that a pattern matches."""
        ...

    def read(self, name: str) -> bytes:
        """What one of them holds."""
        ...


@dataclass(frozen=True, slots=True)
class DiskTree:
    """A folder."""

    folder: Path

    def find(self, pattern: str, exclude: Sequence[str]) -> set[str]:
        """As the artifacts of a task are found."""
        hits = glob(self.folder, pattern, exclude)
        return {hit.relative_to(self.folder).as_posix() for hit in hits if hit.is_file()}

    def read(self, name: str) -> bytes:
        """Read the file; one that is too large only as far as to see that."""
        return _bytes_of(self.folder / name)


@dataclass(frozen=True, slots=True)
class GitTree:
    """A folder as it was in a commit."""

    folder: Path
    """Anywhere in the repository."""
    tree: str
    """`COMMIT:PATH`."""

    def find(self, pattern: str, exclude: Sequence[str]) -> set[str]:
        """Names in the tree; links and submodules are not among them."""
        return {name for name in self._names() if matches(name, pattern)}

    def _names(self) -> Iterator[str]:
        listed = git(self.folder, "ls-tree", "-r", "-z", "--full-tree", self.tree)
        for entry in listed.decode("utf-8", "surrogateescape").split("\0")[:-1]:
            about, _, name = entry.partition("\t")
            if about.split()[0] in PLAIN:
                yield name

    def read(self, name: str) -> bytes:
        """The content, as it was committed."""
        start = self.tree if self.tree.endswith(":") else f"{self.tree}/"
        return git(self.folder, "cat-file", "blob", start + name)


def read_version(word: str, here: Path, task: ReadTask, commit: str = "") -> Version:
    """What a word means, seen from a folder; `commit` is what its revision was taken for before."""
    path = here / word
    if not commit and path.exists():
        if path.is_dir():
            return Version(word, _from_tree(word, DiskTree(path), task))
        name = _stands_for(word, path.name, path.resolve(), task)
        return Version(word, {**task.files.texts, name: _text(word, _bytes_of(path))})
    revision, colon, inside = _parted(word)
    folder = here if colon else task.source.folder
    commit = commit or _commit(word, revision, folder)
    if not colon:
        prefix = git(folder, "rev-parse", "--show-prefix").decode().strip("\n/")
        tree = GitTree(folder, f"{commit}:{prefix}")
        return Version(word, _from_tree(word, tree, task), commit)
    place = f"{commit}:{_from_root(inside, folder)}"
    try:
        kind = git(folder, "cat-file", "-t", place).decode().strip()
    except SetupError:
        hint = "a path behind `:` begins at the top of the repository, unless it begins with `./`"
        raise SetupError(f"`{revision}` has no `{inside}`", hint=hint) from None
    if kind == "tree":
        return Version(word, _from_tree(word, GitTree(folder, place), task), commit)
    name = _stands_for(word, posixpath.basename(inside), None, task)
    text = _text(word, git(folder, "cat-file", "blob", place))
    return Version(word, {**task.files.texts, name: text}, commit)


def _parted(word: str) -> tuple[str, str, str]:
    """Revision, colon, path; a colon in braces belongs to the revision, as in `HEAD^{/fix: it}`."""
    depth = 0
    for at, sign in enumerate(word):
        depth += (sign == "{") - (sign == "}")
        if sign == ":" and not depth:
            return word[:at], sign, word[at + 1 :]
    return word, "", ""


def _commit(word: str, revision: str, folder: Path) -> str:
    ask = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    try:
        return git(folder, *ask).decode().split()[-1]
    except SetupError:
        message = f"`{word}` is no file or folder here, and `{revision}` no revision of git"
        raise SetupError(message) from None


def _from_root(inside: str, folder: Path) -> str:
    """A path behind the colon, from the top of the repository."""
    inside = inside.rstrip("/")
    if inside.split("/")[0] in (".", ".."):
        prefix = git(folder, "rev-parse", "--show-prefix").decode().strip("\n/")
        inside = posixpath.normpath(posixpath.join(prefix, inside))
    return "" if inside == "." else inside


def _from_tree(word: str, tree: Tree, task: ReadTask) -> dict[str, str]:
    """The artifacts in a tree, laid out as the task's folder or as the one they are all in."""
    spec = task.task.artifacts
    shared = posixpath.commonpath([posixpath.dirname(name) for name in task.files.texts])
    for base in dict.fromkeys(("", shared)):
        found: dict[str, str] = {}
        for pattern in spec.include:
            inside = pattern.removeprefix("./").removeprefix(f"{base}/" if base else "")
            for name in sorted(tree.find(inside, ())):
                whole = posixpath.join(base, name)
                if matches(whole, pattern) and not is_excluded(whole, spec.exclude):
                    found[whole] = _text(posixpath.join(word, name), tree.read(name))
        # laid out otherwise, only what the task knows is taken for a version of it
        if found and (not base or found.keys() <= task.files.texts.keys()):
            return found
    patterns = ", ".join(f"`{pattern}`" for pattern in spec.include)
    hint = "lay the files out in it as they are in the task's folder"
    raise SetupError(f"`{word}` holds no artifact: nothing in it matches {patterns}", hint=hint)


def _stands_for(word: str, name: str, path: Path | None, task: ReadTask) -> str:
    """The artifact that a single file is a version of."""
    artifacts = [*task.files.texts]
    if len(artifacts) == 1:
        return artifacts[0]
    itself = [one for one in artifacts if (task.source.folder / one).resolve() == path]
    named = itself or [one for one in artifacts if posixpath.basename(one) == name]
    if len(named) == 1:
        return named[0]
    listed = ", ".join(named or artifacts)
    what = f"may stand for any of {listed}" if named else f"stands for none of {listed}"
    raise SetupError(
        f"`{word}` {what}", hint="name the file as the artifact, or give a folder of all of them"
    )


def _bytes_of(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MAX_CHARS + 1)
    except OSError as error:
        raise SetupError(f"cannot read {path}: {error.strerror}") from error


def _text(name: str, data: bytes) -> str:
    try:
        return decoded(data)
    except ValueError as error:
        raise SetupError(f"`{name}` is {error}") from None
