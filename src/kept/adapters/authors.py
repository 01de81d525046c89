"""Who writes a new text of a component, given records of what the old one did."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any, NamedTuple, Protocol, cast

from kept.adapters.records import Records, shown
from kept.core.edit import Write
from kept.core.model import Message, ModelReply, ModelRequest
from kept.core.ports import Model, Scope
from kept.core.proposal import Brief, ClosedStep
from kept.core.rollout import FREE, Failure, Usage
from kept.engine.threads import call_apart
from kept.evaluators.runners.function import failure_of
from kept.models.ask import ask
from kept.models.prompts import prompt
from kept.models.structured_output import ReplyRules
from kept.models.window import tokens_of
from kept.proposers.proposers_fitting import Item, fit
from kept.proposers.showing import UNTOLD, parent_item, verdict_of

REFUSED = 3
"""Texts that came to nothing and are shown, the last ones."""

SILENT = (*UNTOLD, "duplicate")
"""Codes of steps that say nothing of their text, or nothing that an earlier one does not say."""

_TAGS = ("<new-text>", "</new-text>")
# beginnings and ends apart: one pattern for both takes the square of a long reply, or more
_TAGGED = (re.compile(r"<new-text>[^\S\n]*\n"), re.compile(r"\n[^\S\n]*</new-text>"))
_FENCED = (
    re.compile(r"^```[^\n]*\n", re.MULTILINE),
    re.compile(r"\n```[^\S\n]*$", re.MULTILINE),
)


class Work(NamedTuple):
    """What there is to write, and by what."""

    brief: Brief
    components: tuple[str, ...]
    records: Records


class Written(NamedTuple):
    """New texts by component."""

    texts: Mapping[str, str]
    unseen: str = ""
    """What the author was not shown, in words."""


class Author(Protocol):
    """Writes new texts; remembers nothing."""

    async def write(self, work: Work, scope: Scope) -> Written | Failure:
        """New texts for some of the components."""
        ...


@dataclass(frozen=True, slots=True)
class FunctionAuthor:
    """A peer's own function `(candidate, records, components) -> new texts`."""

    function: Callable[..., Any]
    usd: float | None = None
    """What a call is charged with; None where nobody says."""

    async def write(self, work: Work, scope: Scope) -> Written | Failure:
        """What the function returns; asked once, also when a run goes on after a kill."""
        texts, records = dict(work.brief.incumbent.texts), {**work.records}
        components = list(work.components)

        async def do() -> ModelReply | Failure:
            try:
                told = await call_apart(self.function, texts, records, components)
            except Exception as error:  # noqa: BLE001 # the wrapper of a port: theirs is a value
                return replace(failure_of(error), blame="infrastructure")
            return _as_reply(told, work.brief.incumbent.texts, _charge(self.usd))

        request = {"texts": texts, "records": records, "components": components}
        reply = await scope.call(request, ModelReply, do, self.usd)
        return reply if isinstance(reply, Failure) else Written(json.loads(reply.text))


@dataclass(frozen=True, slots=True)
class ModelAuthor:
    """A model that reads the records and writes the text anew."""

    model: Model
    room: int | None = None
    """Tokens that a request may have; None where that is not known."""
    templates: Mapping[str, str] = field(default_factory=dict[str, str])
    """A prompt of the user's own by component, or for all under the empty name."""
    guidance: Mapping[str, str] = field(default_factory=dict[str, str])
    """What somebody wants, by title."""
    told: str = field(default_factory=partial(prompt, "component"))
    """What it is to do, where no template says so."""

    async def write(self, work: Work, scope: Scope) -> Written | Failure:
        """Ask for each component by itself."""
        found: dict[str, str] = {}
        unseen = ""
        for component in work.components:
            words, left_out = self._words(work, component)
            # another seed for each step, or steps open side by side would propose the same
            request = ModelRequest((Message("user", words),), seed=work.brief.seed >> 17)
            rules = ReplyRules(usable=lambda text: text_in(text) is not None)
            reply = await ask(scope, self.model, request, rules=rules)
            if isinstance(reply, Failure):
                return replace(reply, blame="infrastructure")
            if reply.finish == "length":
                message = f"`{self.model.name}` did not come to the end of the text"
                return Failure("limit", "infrastructure", message)
            text = text_in(reply.text)
            if text is None:
                tags = " and ".join(_TAGS)
                message = f"`{self.model.name}` did not write its text between {tags}"
                return Failure("parse", "infrastructure", message)
            found[component] = text
            unseen = unseen or left_out
        return Written(found, unseen)

    def _words(self, work: Work, component: str) -> tuple[str, str]:
        """What the model is told, and what of it there was no room for."""
        template = self.templates.get(component) or self.templates.get("", "")
        told = template or self.told
        room = None if self.room is None else self.room - tokens_of(told)
        if not template:
            fitted = fit([*self._items(work, component)], room)
            return f"{told}\n{fitted.message().text}", fitted.unseen
        # it has places for the text and the records alone
        text = _text_item(work, component)
        fitted = fit([text, *_record_items(work, component)], room)
        records = "\n\n".join(item.text for item in fitted.items if item is not text)
        filled = template.replace("<curr_param>", text.text).replace("<side_info>", records)
        return filled, fitted.unseen

    def _items(self, work: Work, component: str) -> Iterator[Item]:
        brief = work.brief
        yield from parent_item(brief)
        yield _text_item(work, component)
        for title, wish in self.guidance.items():
            yield Item("piece of guidance", f"# {title}", wish, material=False)
        yield from _record_items(work, component)
        for step, tried in islice(_refused(brief, component), REFUSED):
            told = f"{tried}\n\nverdict: {verdict_of(step)}"
            yield Item("refused text", f"# Step {step.step} tried this", told)
        for name, other in brief.incumbent.texts.items():
            if name != component:
                yield Item("further text", f"# The text `{name}`, which stays as it is", other)


@dataclass(frozen=True, slots=True)
class CallableModel:
    """A function of a prompt as a model."""

    function: Callable[..., Any]
    name: str = "reflection_lm"
    usd: float | None = None
    """What a call is charged with; None where nobody says."""

    def worst_usd(self, request: ModelRequest) -> float | None:
        """What a call is charged with."""
        return self.usd

    async def complete(self, request: ModelRequest) -> ModelReply | Failure:
        """One reply."""
        try:
            told = await call_apart(self.function, request.messages[-1].text)
        except Exception as error:  # noqa: BLE001 # the wrapper of a port: theirs is a value
            return replace(failure_of(error), blame="infrastructure")
        rows = cast("list[object]", told) if isinstance(told, list) else [told]
        if not rows or not isinstance(rows[0], str):
            message = f"`{self.name}` returned {told!r:.200}, not a text"
            return Failure("parse", "infrastructure", message)
        return ModelReply(rows[0], _charge(self.usd))


def _text_item(work: Work, component: str) -> Item:
    text = work.brief.incumbent[component]
    return Item("text", f"# The text `{component}` as it is now", text, needed=True)


def _record_items(work: Work, component: str) -> Iterator[Item]:
    for n, record in enumerate(work.records[component], 1):
        yield Item("record", f"# Record {n} of what came of it", shown(record))


def text_in(said: str) -> str | None:
    """The new text of a reply: between tags, between fences, or all of it; None for half of it."""
    tagged = _between(said, *_TAGGED)
    tagged = _on_a_line(said) if tagged is None else tagged
    if tagged is not None:
        return tagged.strip()
    fenced = _between(said, *_FENCED)
    text = (said if fenced is None else fenced).strip()
    return None if any(tag in text for tag in _TAGS) else text


def _between(said: str, opening: re.Pattern[str], closing: re.Pattern[str]) -> str | None:
    """From the first beginning to the last end."""
    start = opening.search(said)
    ends = [found.start() for found in closing.finditer(said)]
    if start is None or not ends or ends[-1] < start.end():
        return None
    return said[start.end() : ends[-1]]


def _on_a_line(said: str) -> str | None:
    """From the last tag that opens: a reply may speak of the tag before it uses it."""
    opening, closing = _TAGS
    end = said.rfind(closing)
    start = said.rfind(opening, 0, max(end, 0))
    return None if start < 0 else said[start + len(opening) : end]


def _refused(brief: Brief, component: str) -> Iterator[tuple[ClosedStep, str]]:
    """Texts of a component that came to nothing, each once, the last first."""
    told: set[str] = set()
    for step in reversed(brief.closed):
        if step.proposal is None or step.verdict.outcome == "keep" or step.verdict.code in SILENT:
            continue
        for edit in step.proposal.edits:
            if isinstance(edit, Write) and edit.path == component and edit.text not in told:
                told.add(edit.text)
                yield step, edit.text


def _charge(usd: float | None) -> Usage:
    return FREE if usd is None else Usage(usd=usd)


def _as_reply(told: object, texts: Mapping[str, str], usage: Usage) -> ModelReply | Failure:
    if isinstance(told, Mapping):
        new = cast("Mapping[object, object]", told)
        if all(k in texts and isinstance(v, str) for k, v in new.items()):
            return ModelReply(json.dumps(dict(new)), usage)
    message = f"the proposer returned {told!r:.200}, not new texts of {', '.join(texts)}"
    return Failure("parse", "infrastructure", message)
