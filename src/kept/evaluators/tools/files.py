"""Shared files of the workers of one run, in memory, and tools for them.

The tools list, read, write and delete. They work on `SharedFiles` only and nothing touches a
disk, so no path or link leads outside. An invalid path is an answer for the model.

Changes are stamped and journalled with the tool's answer: of two changes of one file the later
stamp wins. A resume can therefore repeat them in any order.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from kept.core.artifact import is_safe_path
from kept.core.llm import ToolAnswer, ToolOffer
from kept.core.ports import Scope
from kept.core.rollout import Failure
from kept.core.text import count
from kept.evaluators.tools.journalled_call import cut, journalled
from kept.models.structured_output import problem_with
from kept.sandbox.bwrap import INSIDE

MOST_BYTES = 64 * 1024 * 1024
"""Maximum size of all files together."""

MOST_FILES = 5_000

OUTPUT = "output"
"""Folder of the workspace for deliverables."""

MOUNT = str(INSIDE / "output")
"""Path at which commands see the files; constant, so that equal requests stay equal."""

Changes = Mapping[str, bytes | None]
"""New contents by path; None removes a file."""


class SharedFiles:
    """Shared files by path, with size limits."""

    def __init__(self, most_bytes: int = MOST_BYTES, most_files: int = MOST_FILES) -> None:
        self.most_bytes = most_bytes
        self._most_files = most_files
        self._files: dict[str, bytes] = {}
        self._stamps: dict[str, int] = {}
        """Stamp of the last change of each path, also of deleted ones."""
        self._last = 0
        self._bytes = 0
        self._folders: Counter[str] = Counter()
        """Number of files below each folder, kept up to date: there may be thousands of files."""

    def copy(self) -> "SharedFiles":
        """Copy with the same files; later changes are separate."""
        other = SharedFiles(self.most_bytes, self._most_files)
        other.apply(self._files, other.stamp())
        return other

    def read(self, path: str) -> bytes | None:
        """Content of a file; None if there is none."""
        return self._files.get(path)

    def all(self) -> dict[str, bytes]:
        """All files by path, sorted."""
        return dict(sorted(self._files.items()))

    def below(self, folder: str) -> dict[str, bytes]:
        """The files of a folder, by path below it."""
        start = f"{folder}/"
        return {p.removeprefix(start): d for p, d in self.all().items() if p.startswith(start)}

    def refusal(self, changes: Changes) -> str | None:
        """Reason why changes are refused; None if they are allowed."""
        for path in changes:
            if not is_safe_path(path):
                return f"`{path}` is not a path below the workspace"
        if clash := self._clash(changes):
            return clash
        files, size = len(self._files), self._bytes
        for path, data in changes.items():
            old = self._files.get(path)
            files += (data is not None) - (old is not None)
            size += len(data or b"") - len(old or b"")
        if files > self._most_files:
            return f"the workspace holds at most {count(self._most_files, 'file')}"
        if size > self.most_bytes:
            return f"the workspace holds at most {self.most_bytes / 2**20:g} MiB"
        return None

    def _clash(self, changes: Changes) -> str | None:
        """Describe the first path that would be a file and a folder; None without one."""
        folders: Counter[str] = Counter()
        for path, data in changes.items():
            change = (data is not None) - (path in self._files)
            folders.update(dict.fromkeys(_above(path), change))
        for path, data in changes.items():
            if data is None:
                continue
            if self._folders[path] + folders[path]:
                return f"`{path}` is a folder"
            for one in _above(path):
                if changes.get(one, b"") is not None and (one in changes or one in self._files):
                    return f"`{one}` is a file, and no folder"
        return None

    def stamp(self) -> int:
        """Return the stamp of the next change."""
        self._last += 1
        return self._last

    def apply(self, changes: Changes, stamp: int) -> None:
        """Apply changes, or repeat them; paths with a later stamp stay as they are."""
        self._last = max(self._last, stamp)
        for path, data in changes.items():
            if self._stamps.get(path, 0) > stamp:
                continue
            self._stamps[path] = stamp
            self._put(path, data)

    def _put(self, path: str, data: bytes | None) -> None:
        old = self._files.pop(path, None)
        self._bytes += len(data or b"") - len(old or b"")
        change = (data is not None) - (old is not None)
        if change:
            self._folders.update(dict.fromkeys(_above(path), change))
        if data is not None:
            self._files[path] = data


def changes_between(before: Mapping[str, bytes], after: Mapping[str, bytes]) -> Changes:
    """Changes that turn one set of files into another."""
    changes: dict[str, bytes | None] = {p: d for p, d in after.items() if before.get(p) != d}
    return changes | {path: None for path in before if path not in after}


def path_of(given: str) -> str | None:
    """Path below the workspace; None if the given path is outside."""
    path = given.strip()
    for start in (f"{MOUNT}/", "./"):
        path = path.removeprefix(start)
    return path if is_safe_path(path) else None


def _above(path: str) -> list[str]:
    """Parent folders of a path, outermost first."""
    parts = path.split("/")
    return ["/".join(parts[:n]) for n in range(1, len(parts))]


MOST_LISTED = 500
"""Maximum number of files in one list."""

Arguments = Mapping[str, object]
Act = Callable[[SharedFiles, Arguments], ToolAnswer]


@dataclass(frozen=True, slots=True)
class FileTool:
    """One tool on the shared files."""

    offer: ToolOffer
    files: SharedFiles
    act: Act

    async def use(self, arguments: Arguments, scope: Scope) -> ToolAnswer | Failure:
        """Call the tool once; a resume applies the journalled answer."""

        async def do() -> ToolAnswer | Failure:
            given = _with_usual_names(arguments, _FIELDS[self.offer.name])
            if wrong := problem_with(given, self.offer.parameters):
                return ToolAnswer(f"the arguments are wrong, {wrong}", wrong=True)
            return self.act(self.files, given)

        request = {"tool": self.offer.name, "arguments": dict(arguments)}
        return applied(self.files, await journalled(scope, request, do))


def applied(files: SharedFiles, answer: ToolAnswer | Failure) -> ToolAnswer | Failure:
    """Apply the journalled changes of an answer, whether new or from a resume."""
    if isinstance(answer, ToolAnswer) and answer.changes:
        files.apply(answer.changes, answer.stamp)
    return answer


def file_tools(files: SharedFiles, texts: Mapping[str, str] | None = None) -> tuple[FileTool, ...]:
    """The four file tools; `texts` may replace their descriptions for the model."""
    return tuple(
        FileTool(ToolOffer(name, (texts or {}).get(name) or about, _schema(fields)), files, act)
        for name, about, fields, act in _TOOLS
    )


def _with_usual_names(arguments: Arguments, takes: Collection[str]) -> dict[str, object]:
    """Rename arguments that a model spells as in other products."""
    given = dict(arguments)
    for name in takes:
        other = next((one for one in _SPELLINGS[name] if one in given and one not in takes), None)
        if name not in given and other is not None:
            given[name] = given.pop(other)
    return given


def _list(files: SharedFiles, arguments: Arguments) -> ToolAnswer:
    folder = str(arguments.get("folder") or "").strip().rstrip("/")
    if not folder.startswith(MOUNT):
        folder = folder.lstrip("/")
    inside = "" if folder in ("", ".", MOUNT) else path_of(folder)
    if inside is None:
        return _outside(folder)
    start = f"{inside}/" if inside else ""
    rows = [
        f"{path} ({len(data)} bytes)"
        for path, data in files.all().items()
        if path.startswith(start)
    ]
    if not rows:
        return ToolAnswer(f"there are no files in `{folder or '.'}`")
    more = [f"[{len(rows) - MOST_LISTED} more]"] if len(rows) > MOST_LISTED else []
    return ToolAnswer("\n".join([*rows[:MOST_LISTED], *more]))


def _read(files: SharedFiles, arguments: Arguments) -> ToolAnswer:
    given = str(arguments["path"])
    path = path_of(given)
    if path is None:
        return _outside(given)
    data = files.read(path)
    if data is None:
        return ToolAnswer(f"there is no file `{given}`", wrong=True)
    try:
        return ToolAnswer(cut(data.decode()))
    except UnicodeDecodeError:
        return ToolAnswer(f"`{given}` is no text: {count(len(data), 'byte')} of binary data")


def _write(files: SharedFiles, arguments: Arguments) -> ToolAnswer:
    given = str(arguments["path"])
    path = path_of(given)
    if path is None:
        return _outside(given)
    data = str(arguments["content"]).encode("utf-8", "replace")
    if arguments.get("append"):
        data = (files.read(path) or b"") + data
    return _changed(files, {path: data}, f"wrote {count(len(data), 'byte')} to `{path}`")


def _delete(files: SharedFiles, arguments: Arguments) -> ToolAnswer:
    given = str(arguments["path"])
    path = path_of(given)
    if path is None:
        return _outside(given)
    if files.read(path) is None:
        return ToolAnswer(f"there is no file `{given}`", wrong=True)
    return _changed(files, {path: None}, f"deleted `{path}`")


def _changed(files: SharedFiles, changes: Mapping[str, bytes | None], words: str) -> ToolAnswer:
    if why := files.refusal(changes):
        return ToolAnswer(why, wrong=True)
    return replace(ToolAnswer(words), changes=changes, stamp=files.stamp())


def _outside(given: str) -> ToolAnswer:
    message = f"`{given}` is not a path below the workspace; write one like `output/report.md`"
    return ToolAnswer(message, wrong=True)


def _schema(fields: Mapping[str, tuple[str, str, bool]]) -> dict[str, object]:
    return {
        "type": "object",
        "properties": {
            name: {"type": kind, "description": about} for name, (kind, about, _) in fields.items()
        },
        "required": [name for name, (_, _, needed) in fields.items() if needed],
        "additionalProperties": False,
    }


_SPELLINGS: Mapping[str, tuple[str, ...]] = {
    "path": ("file_path", "filepath", "filename", "file_name", "file", "name"),
    "content": ("contents", "text", "file_text", "file_content", "data", "body"),
    "folder": ("path", "directory", "dir", "folder_path", "dir_path"),
    "append": (),
}
"""Names of the same arguments in other products, by Kept's name."""

_PATH = ("string", "a path below the workspace, as in output/report.md", True)
_TOOLS: tuple[tuple[str, str, Mapping[str, tuple[str, str, bool]], Act], ...] = (
    (
        "file_list",
        "List the files of the workspace with their sizes.",
        {"folder": ("string", "only what is below this folder; all files without it", False)},
        _list,
    ),
    ("file_read", "Read a text file of the workspace.", {"path": _PATH}, _read),
    (
        "file_write",
        "Write a text file of the workspace, whole; folders are made as needed. "
        "What is to be delivered goes below output/.",
        {
            "path": _PATH,
            "content": ("string", "all that the file is to hold", True),
            "append": ("boolean", "put it behind what the file holds already", False),
        },
        _write,
    ),
    ("file_delete", "Delete a file of the workspace.", {"path": _PATH}, _delete),
)
_FIELDS = {name: fields for name, _, fields, _ in _TOOLS}
