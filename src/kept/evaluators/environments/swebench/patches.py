"""Patches: which files one touches, and why one is refused before anything is done with it.

A patch comes from a model. It is text in the format of `git diff` and may only touch plain files of
the repository.
"""

import re
from pathlib import PurePosixPath

MOST_BYTES = 1_000_000
MOST_FILES = 300

_HUNK = re.compile(r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")
_HEADS = ("--- ", "+++ ", "rename from ", "rename to ", "copy from ", "copy to ")
_MODES = {"120000": "a symbolic link", "160000": "a submodule"}
_ESCAPE = re.compile(r'\\([abfnrtv"\\]|[0-7]{3})')
_LETTERS = {"a": 7, "b": 8, "t": 9, "n": 10, "v": 11, "f": 12, "r": 13, '"': 34, "\\": 92}


class PatchRefused(Exception):
    """A patch that is not applied; the message says why."""


def touched_files(patch: str) -> list[str]:
    """Paths that a patch reads or writes, in its order; raises `PatchRefused`.

    An empty patch touches nothing. What is no diff at all is refused.
    """
    if not patch.strip():
        return []
    if len(patch.encode("utf-8", "surrogateescape")) > MOST_BYTES:
        raise PatchRefused(f"the patch is larger than {MOST_BYTES:,} bytes")
    found: dict[str, None] = {}
    for line in _heads(patch):
        _check_head(line)
        for path in _paths(line):
            _check_path(path)
            found[path] = None
    if not found:
        raise PatchRefused("the patch has no file in it: a diff of `git diff` is expected")
    if len(found) > MOST_FILES:
        raise PatchRefused(f"the patch touches more than {MOST_FILES} files")
    return list(found)


def _heads(patch: str) -> list[str]:
    """Lines of a patch that are no content of a file."""
    found: list[str] = []
    old = new = 0
    for line in patch.split("\n"):
        if old > 0 or new > 0:
            old -= line[:1] in ("-", " ", "")
            new -= line[:1] in ("+", " ", "")
            continue
        hunk = _HUNK.match(line)
        if hunk is not None:
            old, new = (int(one) if one is not None else 1 for one in hunk.groups())
        else:
            found.append(line)
    return found


def _check_head(line: str) -> None:
    if line.startswith("GIT binary patch") or re.match(r"Binary files .* differ", line):
        raise PatchRefused("the patch changes a binary file")
    mode = re.match(r"(?:new file mode|new mode|old mode|deleted file mode) (\d+)", line)
    mode = mode or re.match(r"index [0-9a-f]+\.\.[0-9a-f]+ (\d+)", line)
    if mode is not None and mode[1] in _MODES:
        raise PatchRefused(f"the patch changes {_MODES[mode[1]]}")


def _paths(line: str) -> list[str]:
    if line.startswith("diff --git "):
        return [_stripped(part) for part in _pair(line.removeprefix("diff --git "))]
    for head in _HEADS:
        if line.startswith(head):
            name = _unquoted(line.removeprefix(head).partition("\t")[0].rstrip("\r"))
            if name == "/dev/null":
                return []
            return [_stripped(name) if head in ("--- ", "+++ ") else name]
    return []


def _pair(names: str) -> list[str]:
    """Both names of a `diff --git` line; an unquoted one may hold blanks, and both are alike."""
    quoted = re.match(r'("(?:[^"\\]|\\.)*"|\S+) ("(?:[^"\\]|\\.)*"|\S+)\Z', names)
    if quoted is not None:
        return [_unquoted(quoted[1]), _unquoted(quoted[2])]
    half = len(names) // 2
    return [names[:half], names[half + 1 :]]


def _unquoted(name: str) -> str:
    if not (len(name) > 1 and name[0] == name[-1] == '"'):
        return name
    raw = _ESCAPE.sub(lambda found: chr(_LETTERS.get(found[1]) or int(found[1], 8)), name[1:-1])
    try:
        return raw.encode("latin-1").decode("utf-8")
    except (UnicodeEncodeError, UnicodeDecodeError):
        return raw


def _stripped(name: str) -> str:
    """A name without its `a/` or `b/`; an absolute one stays absolute."""
    return name if name.startswith("/") else name.partition("/")[2] or name


def _check_path(path: str) -> None:
    parts = PurePosixPath(path).parts
    outside = path.startswith("/") or ".." in parts or not parts
    if outside or any(part.lower() == ".git" for part in parts):
        raise PatchRefused(f"the patch touches `{path[:200]}`, which is outside the repository")
    if any(ord(sign) < 32 or ord(sign) == 127 for sign in path):
        raise PatchRefused(f"the patch has a control character in the path {path[:200]!r}")
