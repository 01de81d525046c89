"""Read-only tools for documents below some folders: glob, read and grep.

No other files can be reached: a path that leads elsewhere, by `..` or by a link, is refused. An
invalid call returns an answer that the model can use.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from kept.core.llm import ToolAnswer, ToolOffer
from kept.core.ports import Scope
from kept.core.rollout import Failure
from kept.evaluators.tools.journalled_call import journalled
from kept.models.structured_output import problem_with

MOST_PATHS = 50
"""Maximum number of paths per glob."""

MOST_LINES = 80
"""Default number of lines per read."""

MOST_CHARS = 4_000
"""Maximum number of characters per read."""

MOST_HITS = 20
"""Maximum number of lines per grep."""

MOST_LINE_CHARS = 400
"""Maximum number of characters of a line that grep shows."""


@dataclass(frozen=True, slots=True)
class Documents:
    """The text files below some folders, by their path below the folder that they are in."""

    roots: tuple[Path, ...]
    names: frozenset[str] | None = None
    """Names of the files to include; None for all."""
    _found: dict[str, Path] = field(default_factory=dict[str, Path], repr=False, compare=False)

    def files(self) -> Mapping[str, Path]:
        """Documents by path; if two share a path, that of the first folder."""
        if not self._found:
            self._found.update(self._walk())
        return self._found

    def find(self, path: str) -> Path | None:
        """Path of a document; None if there is no such document."""
        return self.files().get(path.strip().removeprefix("./"))

    def _walk(self) -> Iterator[tuple[str, Path]]:
        # the first folder last, so that its documents take the place of others
        for root in reversed(self.roots):
            base = root.resolve()
            for path in sorted(base.rglob("*")):
                inside = path.resolve().is_relative_to(base) and path.is_file()
                if inside and (self.names is None or path.name in self.names):
                    yield path.relative_to(base).as_posix(), path


Arguments = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class DocumentTool:
    """One read-only tool on documents."""

    offer: ToolOffer
    documents: Documents
    act: Callable[[Documents, Arguments], ToolAnswer]

    async def use(self, arguments: Arguments, scope: Scope) -> ToolAnswer | Failure:
        """Call the tool once; a resume returns the journalled answer."""

        async def do() -> ToolAnswer | Failure:
            if wrong := problem_with(dict(arguments), self.offer.parameters):
                return ToolAnswer(f"the arguments are wrong, {wrong}", wrong=True)
            try:
                return self.act(self.documents, arguments)
            except OSError as error:
                message = f"cannot read {error.filename}: {error.strerror}"
                return Failure("harness", "infrastructure", message)

        request = {"tool": self.offer.name, "arguments": dict(arguments)}
        return await journalled(scope, request, do)


def document_tools(documents: Documents) -> tuple[DocumentTool, ...]:
    """Glob, read and grep."""
    return tuple(
        DocumentTool(ToolOffer(name, about, schema), documents, act)
        for name, about, schema, act in _TOOLS
    )


def _glob(documents: Documents, arguments: Arguments) -> ToolAnswer:
    pattern = str(arguments["pattern"]).strip()
    plain = pattern.removeprefix("./").replace("**/", "*")
    found = [
        path
        for path in sorted(documents.files())
        if fnmatchcase(path, plain) or fnmatchcase(path.rpartition("/")[2], plain)
    ]
    if not found:
        return ToolAnswer(f"no document fits `{pattern}`")
    more = [f"[{len(found) - MOST_PATHS} more]"] if len(found) > MOST_PATHS else []
    return ToolAnswer("\n".join([*found[:MOST_PATHS], *more]))


def _read(documents: Documents, arguments: Arguments) -> ToolAnswer:
    path = documents.find(str(arguments["path"]))
    if path is None:
        return _refused(arguments["path"])
    lines = _lines(path)
    start, limit = _number(arguments, "start", 1), _number(arguments, "limit", MOST_LINES)
    shown = lines[start - 1 : start - 1 + limit]
    if not shown:
        return ToolAnswer(f"there is no line {start}: the document has {len(lines)}", wrong=True)
    text = "\n".join(shown)
    if len(text) > MOST_CHARS:
        text = f"{text[:MOST_CHARS]}\n[cut after {MOST_CHARS:,} characters]"
    end = start - 1 + len(shown)
    return ToolAnswer(f"{text}\n[lines {start} to {end} of {len(lines)}]")


def _grep(documents: Documents, arguments: Arguments) -> ToolAnswer:
    wanted = str(arguments["pattern"]).casefold()
    given = str(arguments.get("path") or "").strip()
    if given:
        one = documents.find(given)
        if one is None:
            return _refused(given)
        places: Sequence[tuple[str, Path]] = [("", one)]
    else:
        places = sorted(documents.files().items())
    found: list[str] = []
    for name, path in places:
        for n, line in enumerate(_lines(path), 1):
            if wanted in line.casefold():
                found.append(f"{f'{name}:' if name else ''}{n}: {line[:MOST_LINE_CHARS]}")
        if len(found) > MOST_HITS:
            break
    if not found:
        return ToolAnswer(f"no line has `{arguments['pattern']}`")
    more = ["[there are more]"] if len(found) > MOST_HITS else []
    return ToolAnswer("\n".join([*found[:MOST_HITS], *more]))


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8", errors="replace").split("\n")


def _number(arguments: Arguments, name: str, usual: int) -> int:
    given = arguments.get(name)
    return given if isinstance(given, int) and given > 0 else usual


def _refused(path: object) -> ToolAnswer:
    return ToolAnswer(f"`{path}` is none of the documents; glob lists them", wrong=True)


def _schema(needed: Mapping[str, str], more: Mapping[str, tuple[str, str]]) -> dict[str, object]:
    fields = {name: {"type": "string", "description": about} for name, about in needed.items()}
    fields |= {name: {"type": kind, "description": about} for name, (kind, about) in more.items()}
    return {
        "type": "object",
        "properties": fields,
        "required": list(needed),
        "additionalProperties": False,
    }


_TOOLS: tuple[tuple[str, str, Mapping[str, object], Callable[..., ToolAnswer]], ...] = (
    (
        "glob",
        f"List documents whose path fits a pattern, at most {MOST_PATHS}.",
        _schema({"pattern": "as in *1941*.txt; * alone lists all"}, {}),
        _glob,
    ),
    (
        "read",
        f"Read lines of a document, at most {MOST_CHARS:,} characters.",
        _schema(
            {"path": "of a document"},
            {
                "start": ("integer", "the first line, from 1"),
                "limit": ("integer", f"how many lines; {MOST_LINES} by default"),
            },
        ),
        _read,
    ),
    (
        "grep",
        f"Find lines that hold a text, whatever the case of its letters; at most {MOST_HITS}.",
        _schema(
            {"pattern": "the text, word for word"},
            {"path": ("string", "only in this document; all documents without it")},
        ),
        _grep,
    ),
)
