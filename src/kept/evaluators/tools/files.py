"""Tools for files that workers share: list, read, write, delete.

They work on `SharedFiles` and on nothing else, so no argument leads outside. What is wrong with a
path is an answer that the model can go by. What a use changed is journalled with its answer: a
resume makes the change again, and does not ask why.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from kept.core.model import ToolOffer
from kept.core.ports import Scope
from kept.core.rollout import Failure
from kept.core.tool import ToolAnswer
from kept.core.words import count
from kept.evaluators.tools.shared_files import MOUNT, SharedFiles, path_of
from kept.evaluators.tools.using import cut, journalled
from kept.models.structured_output import problem_with

MOST_LISTED = 500
"""Files that one list has."""

Arguments = Mapping[str, object]
Act = Callable[[SharedFiles, Arguments], ToolAnswer]


@dataclass(frozen=True, slots=True)
class FileTool:
    """One thing that can be done to the files."""

    offer: ToolOffer
    files: SharedFiles
    act: Act

    async def use(self, arguments: Arguments, scope: Scope) -> ToolAnswer | Failure:
        """Do it once, or what came of it when it was done."""

        async def do() -> ToolAnswer | Failure:
            given = _with_usual_names(arguments, _FIELDS[self.offer.name])
            if wrong := problem_with(given, self.offer.parameters):
                return ToolAnswer(f"the arguments are wrong, {wrong}", wrong=True)
            return self.act(self.files, given)

        request = {"tool": self.offer.name, "arguments": dict(arguments)}
        return applied(self.files, await journalled(scope, request, do))


def applied(files: SharedFiles, answer: ToolAnswer | Failure) -> ToolAnswer | Failure:
    """An answer, its changes made: those that were written down, whether now or long ago."""
    if isinstance(answer, ToolAnswer) and answer.changes:
        files.apply(answer.changes, answer.stamp)
    return answer


def file_tools(files: SharedFiles, texts: Mapping[str, str] | None = None) -> tuple[FileTool, ...]:
    """The four of them; `texts` may say otherwise what a model is told of each."""
    return tuple(
        FileTool(ToolOffer(name, (texts or {}).get(name) or about, _schema(fields)), files, act)
        for name, about, fields, act in _TOOLS
    )


def _with_usual_names(arguments: Arguments, takes: Collection[str]) -> dict[str, object]:
    """Arguments by the names that a tool takes, where a model spells them as other tools do."""
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
"""Names that tools of other products have for the same arguments, by ours."""

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
