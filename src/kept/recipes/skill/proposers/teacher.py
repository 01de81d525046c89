"""Teacher model of skill training: its requests, and the three reply formats.

`patch`: edits, applied one by one. `rewrite_from_suggestions`: suggestions, used to rewrite the
skill. `full_rewrite_minibatch`: a whole skill for every minibatch. The teacher reflects, merges,
ranks and writes.
"""

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, cast

from kept.core.llm import Effort, Message, ModelReply, ModelRequest
from kept.core.ports import Model, Scope
from kept.core.proposal import Brief
from kept.core.rollout import FREE, Failure
from kept.core.text import one_line
from kept.models.structured_output import Check
from kept.proposers.llm import OURS, Asked, ask_fitted
from kept.proposers.prompt_items import Item
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


MAX_TOKENS = 16_384
"""Of a reply, unless the one that asks says otherwise."""

REWRITE_TOKENS = 64_000
"""Of a reply that holds a whole skill."""

_NOT_GONE = Failure("harness", "infrastructure", "nobody went on without it")


@dataclass(frozen=True, slots=True)
class Prompts:
    """What the teacher is told, by name; those of the user before the environment's, then ours."""

    levels: tuple[Mapping[str, str], ...]

    def find(self, name: str, suffix: str = "") -> str:
        """The text of a prompt; one that is for an update mode before one that is for all."""
        for level in self.levels:
            for one in dict.fromkeys((name + suffix, name)):
                if one in level:
                    return level[one].strip()
        raise LookupError(f"no prompt is called `{name}`")


@dataclass(frozen=True, slots=True)
class Rewriting:
    """How the teacher is asked for a whole skill."""

    effort: Effort | None = None
    max_tokens: int = REWRITE_TOKENS


@dataclass(frozen=True, slots=True, kw_only=True)
class Teacher:
    """Who is asked."""

    model: Model
    request: ModelRequest
    """What every request has in common; it has no messages."""
    prompts: Prompts
    window: int | None = None
    """Tokens that a request and its reply may have together; None where that is not known."""
    rewriting: Rewriting = Rewriting()
    rounds: int = 3
    """Times that one thing is asked at most: what comes after the first is a repair."""
    at_once: int = 16
    """Calls in flight together."""

    def reply(self, wanted: "Wanted") -> int:
        """Tokens that a reply may have; half of the window at most."""
        most = self.request.max_tokens or wanted.max_tokens
        return most if self.window is None else min(most, self.window // 2)

    def room(self, wanted: "Wanted") -> int | None:
        """Tokens that a request may have so that its reply fits too; None where nobody knows."""
        return None if self.window is None else self.window - self.reply(wanted)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a reply must be."""

    schema: Mapping[str, object]
    check: Check | None = None
    effort: Effort | None = None
    max_tokens: int = MAX_TOKENS
    held_to: Mapping[str, object] | None = None
    """A schema that asks for less, where code can drop what is wrong; the model is not shown it."""


class Said(NamedTuple):
    """What the teacher answered."""

    data: dict[str, Any]
    shown: tuple[Item, ...]
    unseen: str
    """What it was not shown, for want of room; in words."""


@dataclass(frozen=True, slots=True)
class Desk:
    """One proposal's conversation with the teacher; each question has a scope of its own."""

    teacher: Teacher
    brief: Brief
    scope: Scope
    _free: asyncio.Semaphore = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_free", asyncio.Semaphore(self.teacher.at_once))

    async def ask(
        self, where: str, system: str, items: Sequence[Item], wanted: Wanted
    ) -> Said | Failure:
        """Ask one thing; `where` tells it from all others of the proposal."""
        gone = await self._note(where, _NOT_GONE)
        if gone != _NOT_GONE:
            return gone
        told = replace(
            self.teacher.request,
            messages=(Message("system", system),),
            schema=wanted.schema,
            # another for each step, or the same batch would bring the same reply
            seed=self.brief.seed >> 17,
            effort=wanted.effort or self.teacher.request.effort,
            max_tokens=self.teacher.reply(wanted),
        )
        teacher = self.teacher
        rules = replace(OURS, rounds=teacher.rounds, check=wanted.check, schema=wanted.held_to)
        asked = Asked(teacher.model, told, teacher.room(wanted), rules)
        async with self._free:
            heard = await ask_fitted(asked, items, self.scope.branch(where))
        if isinstance(heard, Failure):
            return heard
        data = cast("dict[str, Any]", json.loads(heard.reply.text))
        return Said(data, heard.shown.items, heard.shown.unseen)

    async def do_without(self, where: str, failure: Failure) -> None:
        """Go on without an answer, and write that down: it is not asked for after a kill.

        Else what comes next would be asked once more, in other words, though its reply was paid.
        """
        if failure.blame == "infrastructure":
            # what is the candidate's is journalled, and an outage is not
            await self._note(where, replace(failure, blame="candidate", usage=FREE))

    async def _note(self, where: str, failure: Failure) -> Failure:
        """What was written down of a question; else this, which is then."""

        async def told() -> Failure:
            return failure

        # a scope of its own, or the second look would not be at the first line
        found = await self.scope.branch(where).call({"without": where}, ModelReply, told, 0.0)
        return found if isinstance(found, Failure) else failure

    def prompt(self, name: str, suffix: str = "") -> str:
        """What the teacher is told for a purpose."""
        return self.teacher.prompts.find(name, suffix)


def rewriting(desk: Desk, schema: Mapping[str, object], check: Check) -> Wanted:
    """A reply that holds a whole skill."""
    how = desk.teacher.rewriting
    return Wanted(schema, check, how.effort, how.max_tokens)


def is_broken(failure: Failure) -> bool:
    """Whether nothing else will be answered either: a wrong key, say."""
    return failure.kind == "harness" and failure.tried


def words_of(failure: Failure) -> str:
    """A failure in a line."""
    return f"{failure.kind}: {failure.message}"


def words(title: str, text: str, what: str = "aim") -> Item:
    """Something that the teacher is told to do."""
    return Item(what, title, text, material=False, needed=True)
