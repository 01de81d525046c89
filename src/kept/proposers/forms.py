"""What a model that proposes is asked for, and how its reply becomes edits.

One form a kind of proposer. The reply satisfies the form's schema; what the edits do is looked at
by whoever asked.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from kept.core.artifact import Candidate
from kept.core.edit import Append, Delete, Edit, InsertAfter, Replace, Write, not_shorter
from kept.core.proposal import Brief

OPERATIONS = ("replace", "insert_after", "delete", "append", "write")


class Draft(NamedTuple):
    """What a model answered."""

    edits: tuple[Edit, ...]
    why: str
    cases: tuple[str, ...]


def _object(**properties: object) -> dict[str, object]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _rows(item: object) -> dict[str, object]:
    return {"type": "array", "items": item}


_TEXT: Mapping[str, object] = {"type": "string"}
_OPERATION: Mapping[str, object] = {"type": "string", "enum": list(OPERATIONS)}
_EDITS = _rows(_object(op=_OPERATION, path=_TEXT, target=_TEXT, text=_TEXT))


def read_edits(text: str) -> Draft:
    """The edits of a reply."""
    said = cast("dict[str, Any]", json.loads(text))
    edits = tuple(_edit(row) for row in said["edits"])
    return Draft(edits, str(said["why"]).strip(), tuple(said["cases"]))


def _edit(row: dict[str, str]) -> Edit:
    path, target, text = row["path"], row["target"], row["text"]
    match row["op"]:
        case "replace":
            return Replace(path, target, text)
        case "insert_after":
            return InsertAfter(path, target, text)
        case "delete":
            return Delete(path, target or text)
        case "append":
            return Append(path, text)
        case _:
            return Write(path, text)


def _read_files(text: str) -> Draft:
    """The whole texts of a reply."""
    said = cast("dict[str, Any]", json.loads(text))
    edits = tuple(Write(row["path"], row["text"]) for row in said["files"])
    return Draft(edits, str(said["why"]).strip(), tuple(said["cases"]))


def _read_diagnosis(text: str) -> Draft:
    """The edits of a reply; its diagnosis is a part of why."""
    said = cast("dict[str, Any]", json.loads(text))
    draft = read_edits(text)
    causes = [f"{row['case']}: {row['cause']}" for row in said["diagnosis"]]
    return draft._replace(why="\n".join(filter(None, [draft.why, *causes])))


def _nothing(brief: Brief, candidate: Candidate) -> Iterator[str]:
    yield from ()


def _not_shorter(brief: Brief, candidate: Candidate) -> Iterator[str]:
    if longer := not_shorter(brief.incumbent, candidate):
        yield f"{longer}: make them shorter"


@dataclass(frozen=True, slots=True)
class Form:
    """How a model is asked."""

    schema: Mapping[str, Any]
    read: Callable[[str], Draft]
    simplifies: bool = False
    """Whether its edits are meant to leave less, at no loss."""
    faults: Callable[[Brief, Candidate], Iterator[str]] = _nothing
    """What is wrong with the candidate that the edits make, besides what holds for all."""


EDIT = Form(_object(why=_TEXT, cases=_rows(_TEXT), edits=_EDITS), read_edits)
REWRITE = Form(
    _object(why=_TEXT, cases=_rows(_TEXT), files=_rows(_object(path=_TEXT, text=_TEXT))),
    _read_files,
)
SIMPLIFY = Form(EDIT.schema, read_edits, simplifies=True, faults=_not_shorter)
# a model writes in this order: what went wrong in each case comes before what to do about it
REFLECT = Form(
    _object(
        diagnosis=_rows(_object(case=_TEXT, cause=_TEXT)),
        why=_TEXT,
        cases=_rows(_TEXT),
        edits=_EDITS,
    ),
    _read_diagnosis,
)
FORMS: Mapping[str, Form] = {
    "edit": EDIT,
    "rewrite": REWRITE,
    "simplify": SIMPLIFY,
    "reflect": REFLECT,
}
