"""The model that reflects, merges, ranks and writes: who is asked, and how its replies are held."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, cast

from kept.core.model import Effort, Message, ModelReply, ModelRequest
from kept.core.ports import Model, Scope
from kept.core.proposal import Brief
from kept.core.rollout import FREE, Failure
from kept.models.structured_output import Check
from kept.proposers.asking import OURS, Asked, ask_fitted
from kept.proposers.proposers_fitting import Item

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
