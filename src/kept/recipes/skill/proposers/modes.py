"""The three ways in which an optimizer says what should change, and what is read of its reply.

`patch`: edits, which are made one by one. `rewrite_from_suggestions`: suggestions, by which the
skill is then written anew. `full_rewrite_minibatch`: a whole skill for every minibatch.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from kept.core.words import one_line
from kept.recipes.skill.document import OPS, body_of

Mode = Literal["patch", "rewrite_from_suggestions", "full_rewrite_minibatch"]
Source = Literal["failure", "success"]
SOURCES: tuple[Source, ...] = ("failure", "success")

SUGGESTIONS = ("add_rule", "remove_rule", "merge_rules", "reorganize", "compress", "clarify")

TEXT: Mapping[str, object] = {"type": "string"}
COUNT: Mapping[str, object] = {"type": "integer", "minimum": 0}
ANY_LIST: Mapping[str, object] = {"type": "array"}
"""A list of places as it is read: what is no place is dropped by code."""


def shape(**properties: object) -> dict[str, object]:
    """The schema of a mapping with just these keys."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def rows(item: object, least: int = 0) -> dict[str, object]:
    """The schema of a list."""
    found: dict[str, object] = {"type": "array", "items": item}
    return {**found, "minItems": least} if least else found


class Places(NamedTuple):
    """What a model named as places in a numbered list."""

    usable: list[int]
    dropped: list[object]


def places_in(named: Iterable[object], there: int) -> Places:
    """The places that there are, each once; what names none, or one again, is dropped."""
    places = Places([], [])
    for one in named:
        # `True` is an int, and equal to 1
        if type(one) is int and 0 <= one < there and one not in places.usable:
            places.usable.append(one)
        else:
            places.dropped.append(one)
    return places


def shown_places(dropped: Iterable[object]) -> str:
    """What was dropped, for a report."""
    return ", ".join(f"`{one_line(json.dumps(one), 40)}`" for one in dropped)


def without_text(skills: Iterable[Mapping[str, Any]]) -> str:
    """What is wrong with skills of which one says nothing; empty where all do."""
    said = all(body_of(str(one["new_skill"])) for one in skills)
    return "" if said else "`new_skill` is empty"


@dataclass(frozen=True, slots=True)
class Update:
    """What one way of updating asks for."""

    mode: Mode
    key: str
    """Of the items in a patch."""
    label: str
    suffix: str
    """Of the prompts that are for this way alone."""
    item: Mapping[str, object]
    capped: bool = True
    """Whether a step keeps so many of them; else there is one."""

    def items_schema(self, files: Sequence[str]) -> dict[str, object]:
        """The schema of its items; where a skill has several files, an edit names one."""
        if self.mode != "patch" or len(files) < 2:
            return dict(self.item)
        properties: Any = self.item["properties"]
        return shape(**properties, file={"type": "string", "enum": list(files)})

    def patch_schema(self, files: Sequence[str]) -> dict[str, object]:
        """The schema of a patch."""
        return shape(**{"reasoning": TEXT, self.key: rows(self.items_schema(files))})


PATCH = Update(
    "patch",
    "edits",
    "edits",
    "",
    shape(op={"type": "string", "enum": list(OPS)}, target=TEXT, content=TEXT),
)
SUGGEST = Update(
    "rewrite_from_suggestions",
    "revise_suggestions",
    "suggestions",
    "_rewrite",
    shape(
        type={"type": "string", "enum": list(SUGGESTIONS)},
        title=TEXT,
        motivation=TEXT,
        instruction=TEXT,
        priority_hint={"type": "string", "enum": ["low", "medium", "high"]},
    ),
)
REWRITE = Update(
    "full_rewrite_minibatch",
    "skill_candidates",
    "skills",
    "_full_rewrite",
    shape(title=TEXT, change_summary=rows(TEXT), new_skill=TEXT),
    capped=False,
)
UPDATES: Mapping[Mode, Update] = {one.mode: one for one in (PATCH, SUGGEST, REWRITE)}


def analyst_schema(
    update: Update, source: Source, files: Sequence[str], *, notes: bool
) -> dict[str, object]:
    """What an analyst answers with; `notes` where lapses are told apart from defects."""
    if source == "failure":
        seen = {
            "failure_summary": rows(shape(failure_type=TEXT, count=COUNT, description=TEXT)),
        }
    else:
        seen = {"success_patterns": rows(TEXT)}
    if not notes:
        return shape(**seen, patch=update.patch_schema(files))
    whole = shape(**seen, patch=update.patch_schema(files), appendix_notes=rows(TEXT))
    # a batch of nothing but lapses has no patch to offer
    return {**whole, "required": [*seen]}
