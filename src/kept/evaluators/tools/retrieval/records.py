"""Records of json, jsonl and csv files: which there are, and what of each is searched."""

import csv
import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from kept.core.parsing import parse_json
from kept.evaluators.tools.retrieval.config import Records
from kept.evaluators.tools.unreadable import Unreadable

SUFFIXES = (".json", ".jsonl", ".ndjson", ".csv", ".tsv")


@dataclass(frozen=True, slots=True)
class Record:
    """What is searched of one, and what is told with it."""

    text: str
    name: str
    meta: dict[str, str]


def read_records(path: Path, text: str, how: Records) -> list[Record] | None:
    """The records of a file; None for JSON that has none, which is a text. Raises `Unreadable`."""
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
    """A field of a record, by its name with its prefix or without."""
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
    """The records at their path, each with what stands beside the path; None where there are none.

    A list on the way has a path in each of its items.
    """
    outer: dict[str, str] = {}
    return _below(path, value, how, how.path, outer)


def _below(
    path: Path, value: object, how: Records, steps: tuple[str, ...], outer: Mapping[str, str]
) -> list[dict[str, str]] | None:
    if isinstance(value, list):
        items = cast("list[object]", value)
        if not steps and not all(isinstance(item, dict) for item in items):
            return None
        found = [_below(path, item, how, steps, outer) for item in items]
        return [row for rows in found for row in rows or ()]
    if not isinstance(value, dict):
        if steps:
            raise Unreadable(f"`{path.name}` has nothing at `{'.'.join(how.path)}`")
        return None
    fields = cast("dict[str, object]", value)
    if not steps:
        return [{**outer, **_flat(fields, how.prefix)}]
    if steps[0] not in fields:
        known = ", ".join(fields)
        raise Unreadable(f"`{path.name}` has no `{steps[0]}` of `{'.'.join(how.path)}`: {known}")
    beside = {name: item for name, item in fields.items() if name != steps[0]}
    here = {**outer, **_flat(beside, how.meta_prefix)}
    return _below(path, fields[steps[0]], how, steps[1:], here)


def _flat(fields: Mapping[str, Any], prefix: str) -> dict[str, str]:
    """Every value as text, those inside others by a name with a dot."""
    flat: dict[str, str] = {}
    for name, value in fields.items():
        if isinstance(value, dict):
            inner = _flat(cast("dict[str, Any]", value), f"{prefix}{name}.")
            flat |= inner
        elif isinstance(value, str):
            flat[prefix + name] = value
        elif value is not None:
            flat[prefix + name] = json.dumps(value, ensure_ascii=False)
    return flat
