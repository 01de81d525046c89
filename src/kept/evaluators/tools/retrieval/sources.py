"""Sources on disk: files, records of json, jsonl and csv, and their passages.

Texts are split by headings or by length. Tokens are counted without a vocabulary: one for every
four characters of a word, rounded up. No provider counts like that, but for English prose the
totals are close.
"""

import csv
import hashlib
import io
import json
import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from kept.core.parsing import parse_json
from kept.core.untyped import is_dict, is_list
from kept.errors import SetupError
from kept.evaluators.tools import documents
from kept.evaluators.tools.documents import Unreadable, kind_of, read_document
from kept.evaluators.tools.retrieval.config import Ingestion, Records

CHARACTERS = 4
"""Characters of a token."""

_WORD = re.compile(r"\S+")
_HEADING = re.compile(r"^ {0,3}(#{1,6})[ \t]+(.*?)(?:[ \t]+#+)?[ \t]*$")
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})")


@dataclass(frozen=True, slots=True)
class Chunk:
    """One passage and its location."""

    text: str
    source: str
    """File below the source, and the record in it."""
    path: tuple[str, ...] = ()
    """Headings above it, the outermost first."""
    meta: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def whole(self) -> str:
        """Searched text: the headings and the passage."""
        return "\n".join((" > ".join(self.path), self.text)) if self.path else self.text


class Section(NamedTuple):
    """Text directly under a heading."""

    path: tuple[str, ...]
    body: str


def tokens(text: str) -> int:
    """Number of tokens of a text, by the rule in the module docstring."""
    return sum(_weight(word) for word in text.split())


def by_length(text: str, size: int, overlap: int) -> list[str]:
    """Split into passages of at most `size` tokens that overlap by at most `overlap`."""
    words = list(_words(text, size))
    passages: list[str] = []
    first = 0
    while first < len(words):
        # add words while they fit
        last, room = first, size
        while last < len(words) and (room := room - words[last].weight) >= 0:
            last += 1
        passages.append(text[words[first].start : words[last - 1].end])
        if last == len(words):
            break
        # advance by one word at least, or the loop would never end
        next_first, room = last, overlap
        while next_first > first + 1 and (room := room - words[next_first - 1].weight) >= 0:
            next_first -= 1
        first = next_first
    return passages


def by_heading(text: str, depth: int = 6) -> list[Section]:
    """Sections by Markdown heading, in order; the whole text if there are no headings."""
    path: list[tuple[int, str]] = []
    lines: list[str] = []
    found: list[Section] = []
    for line, level, title in _marked(text, depth):
        if not level:
            lines.append(line)
            continue
        _add(found, path, lines, level)
        path = [*(one for one in path if one[0] < level), (level, title)]
        lines = []
    _add(found, path, lines, 0)
    return found


def _add(found: list[Section], path: list[tuple[int, str]], lines: list[str], level: int) -> None:
    """Add a section; skip an empty one that only leads to a deeper heading."""
    body = "\n".join(lines).strip()
    titles = tuple(title for _, title in path)
    if body:
        found.append(Section(titles, body))
    elif path and level <= path[-1][0]:
        found.append(Section(titles[:-1], titles[-1]))


def _marked(text: str, depth: int) -> Iterator[tuple[str, int, str]]:
    """Lines with level and title if they are headings; fenced lines are never headings."""
    fence = ""
    for line in text.splitlines():
        mark = _FENCE.match(line)
        if mark and not fence:
            fence = mark[1]
        elif fence and line.strip().startswith(fence) and not line.strip().strip(fence[0]):
            fence = ""
        heading = None if fence or mark else _HEADING.match(line)
        if heading and len(heading[1]) <= depth and heading[2]:
            yield line, len(heading[1]), heading[2]
        else:
            yield line, 0, ""


class _Word(NamedTuple):
    start: int
    end: int
    weight: int


def _words(text: str, size: int) -> Iterator[_Word]:
    """Positions of words; a word longer than a passage is cut."""
    most = size * CHARACTERS
    for found in _WORD.finditer(text):
        for start in range(found.start(), found.end(), most):
            end = min(start + most, found.end())
            yield _Word(start, end, _weight(text[start:end]))


def _weight(word: str) -> int:
    return -(-len(word) // CHARACTERS)


SUFFIXES = (".json", ".jsonl", ".ndjson", ".csv", ".tsv")


@dataclass(frozen=True, slots=True)
class Record:
    """Searched text of a record, and the fields shown with it."""

    text: str
    name: str
    meta: dict[str, str]


def read_records(path: Path, text: str, how: Records) -> list[Record] | None:
    """Records of a file; None for JSON without records, which is text. Raises `Unreadable`."""
    rows = _rows(path, text, how)
    if rows is None:
        return None
    for name in (*how.fields, *how.meta_fields, *filter(None, (how.id_field,))):
        if rows and not any(_named(row, name, how) is not None for row in rows):
            known = ", ".join(dict.fromkeys(key for row in rows for key in row))
            raise Unreadable(f"no record of `{path.name}` has `{name}`; there is {known}")
    found = [_record(row, number, how) for number, row in enumerate(rows, 1)]
    return [record for record in found if record.text.strip()]


def _record(row: Mapping[str, str], number: int, how: Records) -> Record:
    if how.fields:
        values = (_named(row, name, how) for name in how.fields)
        text = how.separator.join(value for value in values if value)
    else:
        text = how.separator.join(f"{name}: {value}" for name, value in row.items() if value)
    told = {name: _named(row, name, how) for name in how.meta_fields}
    meta = {name: value for name, value in told.items() if value}
    named = _named(row, how.id_field, how) if how.id_field else None
    return Record(text, named or str(number), meta)


def _named(row: Mapping[str, str], name: str, how: Records) -> str | None:
    """Field of a record, by its name with or without its prefix."""
    for known in (name, how.prefix + name, how.meta_prefix + name):
        if known in row:
            return row[known]
    return None


def _rows(path: Path, text: str, how: Records) -> list[dict[str, str]] | None:
    suffix = path.suffix.lower()
    if suffix in (".csv", ".tsv"):
        return list(_csv_rows(path, text, how))
    if suffix in (".jsonl", ".ndjson"):
        lines = [(n, line) for n, line in enumerate(text.splitlines(), 1) if line.strip()]
        parsed = [_parsed(f"{path.name}:{number}", line) for number, line in lines]
        return [row for value in parsed for row in _found(path, value, how) or ()]
    return _found(path, _parsed(path.name, text), how)


def _csv_rows(path: Path, text: str, how: Records) -> Iterator[dict[str, str]]:
    delimiter = how.delimiter or ("\t" if path.suffix.lower() == ".tsv" else ",")
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter, restkey="")
    try:
        for row in reader:
            yield {
                f"{how.prefix}{name}": value
                for name, value in row.items()
                if name and isinstance(value, str)
            }
    except csv.Error as error:
        raise Unreadable(f"`{path.name}:{reader.line_num}` cannot be read: {error}") from error


def _parsed(where: str, text: str) -> object:
    try:
        return parse_json(text)
    except ValueError as error:
        raise Unreadable(f"`{where}` is no JSON: {error}") from error


def _found(path: Path, value: object, how: Records) -> list[dict[str, str]] | None:
    """Records at the configured path, each with the fields beside the path; None if none.

    A list on the path is followed in each of its items.
    """
    outer: dict[str, str] = {}
    return _below(path, value, how, how.path, outer)


def _below(
    path: Path, value: object, how: Records, steps: tuple[str, ...], outer: Mapping[str, str]
) -> list[dict[str, str]] | None:
    if is_list(value):
        if not steps and not all(isinstance(item, dict) for item in value):
            return None
        found = [_below(path, item, how, steps, outer) for item in value]
        return [row for rows in found for row in rows or ()]
    if not is_dict(value):
        if steps:
            raise Unreadable(f"`{path.name}` has nothing at `{'.'.join(how.path)}`")
        return None
    if not steps:
        return [{**outer, **_flat(value, how.prefix)}]
    if steps[0] not in value:
        known = ", ".join(value)
        raise Unreadable(f"`{path.name}` has no `{steps[0]}` of `{'.'.join(how.path)}`: {known}")
    beside = {name: item for name, item in value.items() if name != steps[0]}
    here = {**outer, **_flat(beside, how.meta_prefix)}
    return _below(path, value[steps[0]], how, steps[1:], here)


def _flat(fields: Mapping[str, Any], prefix: str) -> dict[str, str]:
    """Flatten values to text; nested names are joined with a dot."""
    flat: dict[str, str] = {}
    for name, value in fields.items():
        if is_dict(value):
            inner = _flat(value, f"{prefix}{name}.")
            flat |= inner
        elif isinstance(value, str):
            flat[prefix + name] = value
        elif value is not None:
            flat[prefix + name] = json.dumps(value, ensure_ascii=False)
    return flat


MOST_BYTES = 64 << 20
"""Maximum size of a plain text file."""

MOST_FILES = 10_000
"""Maximum number of files of a source: a larger folder was named by mistake."""

_PAGES = (".html", ".htm", ".xhtml")

log = logging.getLogger("kept")


def files_of(source: Path) -> list[tuple[str, Path]]:
    """Files of a source, by path below it; hidden ones are left out."""
    if source.is_file():
        return [(source.name, source)]
    if not source.is_dir():
        raise SetupError(f"there is no {source}", hint="`source` is a file or a folder")
    found: list[tuple[str, Path]] = []
    for path in source.rglob("*"):
        name = path.relative_to(source)
        if path.is_file() and not any(part.startswith(".") for part in name.parts):
            found.append((name.as_posix(), path))
            if len(found) > MOST_FILES:
                raise SetupError(f"{source} has more than {MOST_FILES:,} files")
    return sorted(found)


def digest_of(source: Path) -> str:
    """Hash of all files of a source, by name and bytes."""
    whole = hashlib.sha256()
    for name, path in files_of(source):
        try:
            with path.open("rb") as file:
                inner = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise SetupError(f"cannot read {path}: {error.strerror}") from error
        whole.update(f"{name}\0{inner}\n".encode("utf-8", "surrogateescape"))
    return whole.hexdigest()


def chunks_of(how: Ingestion) -> tuple[Chunk, ...]:
    """All passages of a source; raises `SetupError` if there are none.

    An unreadable file of a folder is logged and left out. A source that is a single file must be
    readable.
    """
    found: list[Chunk] = []
    files = files_of(how.source)
    for name, path in files:
        try:
            found += _chunks(name, path, how)
        except Unreadable as error:
            if how.source.is_file():
                raise SetupError(str(error)) from error
            log.warning("%s is left out of the index: %s", path, error)
    if not found:
        raise SetupError(f"there is no text in {how.source}")
    return tuple(found)


def _text(path: Path) -> str:
    """Text of a file; a plain text file may be longer than `documents.MOST_TEXT`."""
    if kind_of(path) not in ("text", "csv") or path.suffix.lower() in _PAGES:
        return read_document(path).text
    size = path.stat().st_size
    if size > MOST_BYTES:
        raise Unreadable(
            f"`{path.name}` has {size >> 20} MiB, and at most {MOST_BYTES >> 20} are read"
        )
    try:
        return documents.read_plain(path.read_bytes(), MOST_BYTES)
    except Unreadable as error:
        raise Unreadable(f"`{path.name}` cannot be read: {error}") from error


def _chunks(name: str, path: Path, how: Ingestion) -> Iterator[Chunk]:
    text = _text(path)
    records = None
    if how.records is not None and path.suffix.lower() in SUFFIXES:
        records = read_records(path, text, how.records)
    if records is not None:
        for record in records:
            for passage in by_length(record.text, how.size, how.overlap):
                yield Chunk(passage, f"{name}#{record.name}", meta=record.meta)
    elif how.strategy == "token":
        for passage in by_length(text, how.size, how.overlap):
            yield Chunk(passage, name)
    else:
        for section in by_heading(text, how.depth):
            for passage in by_length(section.body, how.size, how.overlap):
                yield Chunk(passage, name, section.path)
