"""A YAML file as plain values, with the line of each and the problems found so far.

It is independent of the file's schema.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from kept.core.untyped import is_dict, is_list, list_in
from kept.errors import Problem, SetupError, SpecError
from kept.models.providers import parse
from kept.settings import without_login
from kept.spec.locate.tree import Selector, parse_path
from kept.spec.yaml import Document, Loc, YamlFault, read_yaml


class Source:
    """A spec while it is read and checked."""

    def __init__(self, path: Path, document: Document) -> None:
        self.path = path
        self.folder = path.absolute().parent
        self.data = document.data
        self.problems: list[Problem] = []
        self.templates = document.templates
        self._lines = document.lines
        self._flags: dict[Loc, str] = {}
        for loc, line in document.doubles:
            message = f"the key stands twice, first in line {document.lines[loc]}"
            self.problems.append(Problem(self.at(line), dotted(loc), message))

    def override(self, loc: Loc, flag: str) -> None:
        """Record that a value, with all values inside it, came from a flag."""
        self._lines = {at: n for at, n in self._lines.items() if at[: len(loc)] != loc}
        self._flags[loc] = flag

    def sets_inside(self, loc: Loc) -> bool:
        """True if flags set parts of a value but not the whole value."""
        deeper = any(len(one) > len(loc) and one[: len(loc)] == loc for one in self._flags)
        return deeper and loc not in self._flags

    def where(self, loc: Loc) -> str:
        """`file:line` of a value or of its nearest parent; or the flag that it came from."""
        for size in range(len(loc), 0, -1):
            above = loc[:size]
            if flag := self._flags.get(above):
                return flag
            if line := self._lines.get(above):
                return self.at(line)
            # not in the file: made by a flag for a value inside it
            for inside, flag in self._flags.items():
                if inside[:size] == above:
                    return flag
        return self.at(1)

    def at(self, line: int) -> str:
        """`file:line` of a line of this file."""
        return f"{shown(self.path)}:{line}"

    def report(self, loc: Loc, message: str, hint: str | None = None) -> None:
        """Report a problem with a value."""
        self.problems.append(Problem(self.where(loc), dotted(loc), message, hint))

    def report_line(self, line: int, message: str, hint: str | None = None) -> None:
        """Report a problem with a whole line."""
        self.problems.append(Problem(self.at(line), "", message, hint))

    def check(self) -> None:
        """Raise a `SpecError` with all problems, if there are any."""
        if self.problems:
            here = shown(self.path)
            raise SpecError(sorted(dict.fromkeys(self.problems), key=lambda p: _order(p, here)))


def _order(problem: Problem, here: str) -> tuple[bool, int]:
    """Sort key: problems of the file itself first, from top to bottom."""
    file, _, line = problem.where.rpartition(":")
    return file != here, int(line) if line.isdigit() else 0


def dotted(loc: Loc) -> str:
    """Write a place as in `artifacts.include[0]`."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc)
    return "".join(parts).removeprefix(".")


def shown(path: Path) -> str:
    """Write a path relative to the working directory if it is inside, else as given."""
    try:
        return str(path.absolute().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def read_source(path: Path, overrides: Sequence[str] = ()) -> Source:
    """Read a file and apply `KEY=VALUE` overrides."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        line = path.read_bytes()[: error.start].count(b"\n") + 1
        raise SpecError([Problem(f"{shown(path)}:{line}", "", "not UTF-8 text")]) from error
    except OSError as error:
        raise SetupError(f"cannot read {shown(path)}: {error.strerror}") from error
    return source_of(path, text, overrides)


def open_spec(spec: Path | Source, overrides: Sequence[str] = ()) -> Source:
    """Read a spec, unless it is read already, and apply `KEY=VALUE` overrides."""
    source = spec if isinstance(spec, Source) else read_source(spec)
    for override in overrides:
        _lay_over(source, override, "--set ")
    return source


def source_of(path: Path, text: str, overrides: Sequence[str] = (), flag: str = "--set ") -> Source:
    """Read the text of a file and apply `KEY=VALUE` overrides.

    Problems with an override are reported at the `flag` that it came from.
    """
    try:
        document = read_yaml(text)
    except YamlFault as fault:
        where = f"{shown(path)}:{fault.line}"
        raise SpecError([Problem(where, "", f"not YAML: {fault.message}", fault.hint)]) from fault
    source = Source(path, document)
    if not isinstance(source.data, dict):
        found = "empty" if source.data is None else f"{kind_of(source.data)}, not a mapping of keys"
        raise SpecError([Problem(source.at(1), "", f"the file is {found}")])
    for override in overrides:
        _lay_over(source, override, flag)
    return source


def kind_of(value: object) -> str:
    """Describe a value in words."""
    match value:
        case None:
            return "nothing"
        case bool():
            return f"`{str(value).lower()}`"
        case int() | float():
            return f"the number {value}"
        case str():
            return f"the text `{value:.60}`"
        case dict():
            return "a mapping"
        case list():
            return "a list"
        case _:
            return f"`{value}`"


_KEY_PART = re.compile(r'"(?:[^"\\]|\\.)*"|\[[^\]]*\]|[^="\[]')


def split_override(override: str) -> tuple[str, str, str]:
    """Split an override into key, `=` and value; a `=` in brackets or quotes belongs to the key."""
    at = 0
    while (part := _KEY_PART.match(override, at)) is not None:
        at = part.end()
    key, rest = override[:at], override[at:]
    if not rest.startswith("="):
        return override.partition("=")
    return key.strip(), "=", rest[1:]


def set_by(override: str, data: object = None) -> tuple[Loc, object]:
    """Return the place and value that a `KEY=VALUE` sets; `YamlFault` if the value is not YAML.

    `[name=x]` in the key is looked up in `data`; without `data` it means the first item.
    """
    key, _, text = split_override(override)
    loc = _loc_of(key, data)
    return () if isinstance(loc, str) else loc, read_yaml(text).data


def _loc_of(key: str, data: object) -> Loc | str:
    """Parse a key such as `proposers[0].files` or `tools[name=x].top_k`; or an error message."""
    parts = parse_path(key)
    if isinstance(parts, str):
        return parts
    loc: list[str | int] = []
    here = data
    for part in parts:
        at: str | int = part if not isinstance(part, Selector) else 0
        if isinstance(part, str) and part.isdigit():
            at = int(part)
        elif isinstance(part, Selector) and data is not None:
            found = _selected(here, part)
            if isinstance(found, str):
                return f"{dotted(tuple(loc))}: {found}"
            at = found
        loc.append(at)
        here = _below(here, at)
    return tuple(loc)


def _selected(items: object, part: Selector) -> int | str:
    """Index of the list item that a selector means; or an error message."""
    rows = list_in(items)
    values = [_below(row, part.field) for row in rows]
    hits = [at for at, value in enumerate(values) if str(value) == part.value]
    if len(hits) == 1:
        return hits[0]
    wanted = f"`{part.field}` is `{part.value}`"
    if hits:
        return f"{len(hits)} items whose {wanted}"
    known = ", ".join(f"`{value}`" for value in values if value is not None)
    return f"no item whose {wanted}" + (f"; there are {known}" if known else "")


def _below(value: object, at: str | int) -> object:
    if is_dict(value) and isinstance(at, str):
        return value.get(at)
    if is_list(value) and isinstance(at, int):
        return value[at] if at < len(value) else None
    return None


_KEY = re.compile(r"((?:^|[\s{,.\"'])\w*api_key[\"']?\s*[:=]\s*)(?!\s|[\"']?\$\{)[^,}]+")


def _lay_over(source: Source, override: str, before: str) -> None:
    """Apply one `KEY=VALUE` override; problems are recorded, not raised."""
    # messages show the flag, so keys and logins are removed
    flag = before + _KEY.sub(r"\1…", without_login(override))
    key, equals, _ = split_override(override)
    loc = _loc_of(key, source.data)
    if isinstance(loc, str) and equals and "[" in key:
        hint = f"write it as in {before}proposers[0].kind=edit or {before}tools[name=x].top_k=5"
        source.problems.append(Problem(flag, "", loc, hint))
        return
    if not equals or isinstance(loc, str):
        example = "budget.max_iterations=50" if before else "train.batch_size=40"
        hint = f"write it as in {before}{example}"
        source.problems.append(Problem(flag, "", "not KEY=VALUE", hint))
        return
    try:
        _, value = set_by(override, source.data)
    except YamlFault as fault:
        message = f"the value is not YAML: {fault.message}"
        source.problems.append(Problem(flag, dotted(loc), message, fault.hint))
        return
    source.override(loc, flag)
    if not _put(source.data, loc, value):
        source.problems.append(Problem(flag, dotted(loc), "unknown key"))


def _put(data: object, loc: Loc, value: object) -> bool:
    """Set a value, with the mappings above it; True if there was a place for it."""
    here, *rest = loc
    if is_list(data) and isinstance(here, int):
        if here >= len(data):
            return False
        if not rest:
            data[here] = value
            return True
        data[here] = _opened(data[here])
        return _put(data[here], tuple(rest), value)
    if not is_dict(data):
        return False
    if not rest:
        data[str(here)] = value
        return True
    if data.get(str(here)) is None:
        data[str(here)] = {}
    data[str(here)] = _opened(data[str(here)])
    return _put(data[str(here)], tuple(rest), value)


def _opened(value: object) -> object:
    """Expand a `provider/model` text into its block; other values are returned unchanged."""
    try:
        provider, model = parse(value) if isinstance(value, str) else ("", "")
    except ValueError:
        return value
    return {"provider": provider, "model": model} if provider else value
