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
"""Schema of a list of places as it is validated: code drops what is not a place."""


def shape(**properties: object) -> dict[str, object]:
    """Return the schema of a mapping with exactly these keys."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def rows(item: object, least: int = 0) -> dict[str, object]:
    """Return the schema of a list."""
    found: dict[str, object] = {"type": "array", "items": item}
    return {**found, "minItems": least} if least else found


class Places(NamedTuple):
    """Places in a numbered list that a model named."""

    usable: list[int]
    dropped: list[object]


def places_in(named: Iterable[object], there: int) -> Places:
    """Return valid places, each once; unknown and repeated ones are dropped."""
    places = Places([], [])
    for one in named:
        # not `isinstance`: `True` is an int, and equal to 1
        if type(one) is int and 0 <= one < there and one not in places.usable:
            places.usable.append(one)
        else:
            places.dropped.append(one)
    return places


def shown_places(dropped: Iterable[object]) -> str:
    """Return dropped places for a report."""
    return ", ".join(f"`{one_line(json.dumps(one), 40)}`" for one in dropped)


def without_text(skills: Iterable[Mapping[str, Any]]) -> str:
    """Return the problem if any of the skills is empty; else an empty text."""
    said = all(body_of(str(one["new_skill"])) for one in skills)
    return "" if said else "`new_skill` is empty"


@dataclass(frozen=True, slots=True)
class Update:
    """Reply format of one way of updating a skill."""

    mode: Mode
    key: str
    """Key of the items in a patch."""
    label: str
    suffix: str
    """Suffix of the prompts for this way only."""
    item: Mapping[str, object]
    capped: bool = True
    """True if a step has a limit of items; else it has a single item."""

    def items_schema(self, files: Sequence[str]) -> dict[str, object]:
        """Return the schema of its items; in a skill with several files, an edit names its file."""
        if self.mode != "patch" or len(files) < 2:
            return dict(self.item)
        properties: Any = self.item["properties"]
        return shape(**properties, file={"type": "string", "enum": list(files)})

    def patch_schema(self, files: Sequence[str]) -> dict[str, object]:
        """Return the schema of a patch."""
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
    """Return the schema of an analyst's reply; `notes` asks for reminders as well."""
    if source == "failure":
        seen = {
            "failure_summary": rows(shape(failure_type=TEXT, count=COUNT, description=TEXT)),
        }
    else:
        seen = {"success_patterns": rows(TEXT)}
    if not notes:
        return shape(**seen, patch=update.patch_schema(files))
    whole = shape(**seen, patch=update.patch_schema(files), appendix_notes=rows(TEXT))
    # a batch that only has lapses needs no patch
    return {**whole, "required": [*seen]}


MAX_TOKENS = 16_384
"""Default token limit of a reply."""

REWRITE_TOKENS = 64_000
"""Default token limit of a reply with a whole skill."""

_NOT_GONE = Failure("harness", "infrastructure", "nobody went on without it")


@dataclass(frozen=True, slots=True)
class Prompts:
    """Prompts of the teacher by name: the user's first, then the environment's, then Kept's."""

    levels: tuple[Mapping[str, str], ...]

    def find(self, name: str, suffix: str = "") -> str:
        """Return the text of a prompt; in each level, one for the update mode takes precedence."""
        for level in self.levels:
            for one in dict.fromkeys((name + suffix, name)):
                if one in level:
                    return level[one].strip()
        raise LookupError(f"no prompt is called `{name}`")


@dataclass(frozen=True, slots=True)
class Rewriting:
    """Settings of requests for a whole skill."""

    effort: Effort | None = None
    max_tokens: int = REWRITE_TOKENS


@dataclass(frozen=True, slots=True, kw_only=True)
class Teacher:
    """Teacher model with its prompts and limits."""

    model: Model
    request: ModelRequest
    """Template of every request, without messages."""
    prompts: Prompts
    window: int | None = None
    """Context window in tokens, for a request and its reply; None if it is not known."""
    rewriting: Rewriting = Rewriting()
    rounds: int = 3
    """Most requests for one reply: those after the first are repairs."""
    at_once: int = 16
    """Most calls in flight at once."""

    def reply(self, wanted: "Wanted") -> int:
        """Return the token limit of a reply; half of the window at most."""
        most = self.request.max_tokens or wanted.max_tokens
        return most if self.window is None else min(most, self.window // 2)

    def room(self, wanted: "Wanted") -> int | None:
        """Return the token limit of a request, so that its reply fits too; None if not known."""
        return None if self.window is None else self.window - self.reply(wanted)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Requirements on a reply."""

    schema: Mapping[str, object]
    check: Check | None = None
    effort: Effort | None = None
    max_tokens: int = MAX_TOKENS
    held_to: Mapping[str, object] | None = None
    """Looser schema for validation, if code can drop what is wrong; the model never sees it."""


class Said(NamedTuple):
    """Reply of the teacher."""

    data: dict[str, Any]
    shown: tuple[Item, ...]
    unseen: str
    """Description of the items that it was not shown, for want of room."""


@dataclass(frozen=True, slots=True)
class Desk:
    """Conversation of one proposal with the teacher; each question has its own scope."""

    teacher: Teacher
    brief: Brief
    scope: Scope
    _free: asyncio.Semaphore = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_free", asyncio.Semaphore(self.teacher.at_once))

    async def ask(
        self, where: str, system: str, items: Sequence[Item], wanted: Wanted
    ) -> Said | Failure:
        """Ask one question; `where` is its unique name within the proposal."""
        # on a resume, the failure that the step went on without is served again
        gone = await self._note(where, _NOT_GONE)
        if gone != _NOT_GONE:
            return gone
        told = replace(
            self.teacher.request,
            messages=(Message("system", system),),
            schema=wanted.schema,
            # a new seed for each step, or the same batch would give the same reply
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
        """Record that the step goes on without an answer, so that a resume does not ask again.

        Otherwise the next requests would change after a resume, and would be paid for again.
        """
        if failure.blame == "infrastructure":
            # the journal keeps failures of the candidate, but not those of the infrastructure
            await self._note(where, replace(failure, blame="candidate", usage=FREE))

    async def _note(self, where: str, failure: Failure) -> Failure:
        """Return the recorded failure of a question; if there is none, record this one."""

        async def told() -> Failure:
            return failure

        # a branch of its own: otherwise a later call would not read the first record
        found = await self.scope.branch(where).call({"without": where}, ModelReply, told, 0.0)
        return found if isinstance(found, Failure) else failure

    def prompt(self, name: str, suffix: str = "") -> str:
        """Return the prompt of the teacher for a purpose."""
        return self.teacher.prompts.find(name, suffix)


def rewriting(desk: Desk, schema: Mapping[str, object], check: Check) -> Wanted:
    """Return the requirements on a reply with a whole skill."""
    how = desk.teacher.rewriting
    return Wanted(schema, check, how.effort, how.max_tokens)


def is_broken(failure: Failure) -> bool:
    """True if no other request can succeed either, for instance with a wrong key."""
    return failure.kind == "harness" and failure.tried


def words_of(failure: Failure) -> str:
    """Return a failure as one line."""
    return f"{failure.kind}: {failure.message}"


def words(title: str, text: str, what: str = "aim") -> Item:
    """Return an item with an instruction to the teacher."""
    return Item(what, title, text, material=False, needed=True)
