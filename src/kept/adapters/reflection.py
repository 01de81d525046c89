"""Reflection: records of rollouts, and a proposer that rewrites components with a model.

A record shows what one rollout says about one component. Records travel in the trace of the
rollout, and so in the journal: a resume has them too.

The proposer looks at a few train cases, then has an author rewrite the text of a component. The
author (`reflection_lm`) is a model by name, or a function with its price. Its prompt is Kept's
own or a file of the user.
"""

import json
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast

from kept.adapters.arguments import OwnTerms, limits_of
from kept.core.case import Case
from kept.core.edit import Write
from kept.core.llm import Message, ModelReply, ModelRequest
from kept.core.ports import Model, Scope
from kept.core.proposal import Ask, Brief, ClosedStep, Proposal, ProposerReply, Skip
from kept.core.rollout import FREE, Failure, Pair, TraceItem, Usage
from kept.core.score import Finding, Outcome
from kept.core.untyped import is_list
from kept.engine.user_code import call_apart
from kept.errors import SetupError
from kept.evaluators.runners.function import failure_of
from kept.models.ask import ask
from kept.models.client import connect
from kept.models.context_window import room_of, tokens_of
from kept.models.prompts import prompt, strange_places
from kept.models.providers import config_of
from kept.models.roles import unbounded
from kept.models.structured_output import ReplyRules
from kept.proposers.prompt_items import UNTOLD, Item, fit, parent_item, verdict_of

Record = Mapping[str, Any]
Records = Mapping[str, list[Record]]
"""Records by component."""

RECORD = "record"
NOTE = "note"

LONGEST = 4000
"""Maximum characters of a value that is not JSON, such as a picture."""


def trace_of(records: Mapping[str, Iterable[Any]]) -> Iterator[TraceItem]:
    """Convert records into trace items."""
    for component, rows in records.items():
        for row in rows:
            try:
                plain = json.loads(json.dumps(row, ensure_ascii=False, default=_cut))
            except (TypeError, ValueError, RecursionError):
                plain = _cut(row)
            record = cast("Record", plain) if isinstance(plain, dict) else {"record": plain}
            yield TraceItem(RECORD, shown(record), {"component": component, "record": record})


def records_in(trace: Iterable[TraceItem], component: str) -> list[Record]:
    """Records of one component."""
    rows = [item.data for item in trace if item.role == RECORD]
    return [cast("Record", data["record"]) for data in rows if data["component"] == component]


def findings_in(trace: Iterable[TraceItem]) -> tuple[Finding, ...]:
    """Feedback and errors in the records, each text once."""
    rows = [cast("Record", item.data["record"]) for item in trace if item.role == RECORD]
    told = [str(v) for row in rows for k, v in row.items() if k.lower() in ("feedback", "error")]
    return tuple(Finding(text) for text in dict.fromkeys(told) if text)


def shown(record: Record) -> str:
    """Record as readable text."""
    return "\n".join(
        f"{name}: {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
        for name, value in record.items()
    )


def _cut(value: object) -> str:
    return str(value)[:LONGEST]


REFUSED = 3
"""Maximum number of refused texts that are shown, the last ones."""

SILENT = (*UNTOLD, "duplicate")
"""Codes of steps that tell nothing about their text, or nothing new."""

_TAGS = ("<new-text>", "</new-text>")
# opening and closing are separate patterns: one for both takes quadratic time on a long reply
_TAGGED = (re.compile(r"<new-text>[^\S\n]*\n"), re.compile(r"\n[^\S\n]*</new-text>"))
_FENCED = (
    re.compile(r"^```[^\n]*\n", re.MULTILINE),
    re.compile(r"\n```[^\S\n]*$", re.MULTILINE),
)


class Work(NamedTuple):
    """Assignment for an author: the components to rewrite, with their records."""

    brief: Brief
    components: tuple[str, ...]
    records: Records


class Written(NamedTuple):
    """New texts by component."""

    texts: Mapping[str, str]
    unseen: str = ""
    """Description of what was cut from the author's prompt."""


class Author(Protocol):
    """Stateless writer of new texts."""

    async def write(self, work: Work, scope: Scope) -> Written | Failure:
        """New texts for some of the components."""
        ...


@dataclass(frozen=True, slots=True)
class FunctionAuthor:
    """A user's own function `(candidate, records, components) -> new texts`."""

    function: Callable[..., Any]
    usd: float | None = None
    """Charge per call in USD; None if unknown."""

    async def write(self, work: Work, scope: Scope) -> Written | Failure:
        """Texts that the function returns; a resumed run takes the recorded reply instead."""
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
    """A model that reads the records and rewrites the text."""

    model: Model
    room: int | None = None
    """Maximum tokens of a request; None if unknown."""
    templates: Mapping[str, str] = field(default_factory=dict[str, str])
    """The user's own prompts by component; the empty name stands for all components."""
    guidance: Mapping[str, str] = field(default_factory=dict[str, str])
    """Guidance by title, such as objective and background."""
    told: str = field(default_factory=partial(prompt, "component"))
    """Prompt that is used if there is no template."""

    async def write(self, work: Work, scope: Scope) -> Written | Failure:
        """Ask the model once per component."""
        found: dict[str, str] = {}
        unseen = ""
        for component in work.components:
            words, left_out = self._words(work, component)
            # each step gets its own seed, or concurrent steps would propose the same text
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
        """Prompt for one component, and a description of what did not fit."""
        template = self.templates.get(component) or self.templates.get("", "")
        told = template or self.told
        room = None if self.room is None else self.room - tokens_of(told)
        if not template:
            fitted = fit([*self._items(work, component)], room)
            return f"{told}\n{fitted.message().text}", fitted.unseen
        # a template has placeholders for the text and the records only
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
    """Charge per call in USD; None if unknown."""

    def worst_usd(self, request: ModelRequest) -> float | None:
        """Highest cost of a call: the given charge."""
        return self.usd

    async def complete(self, request: ModelRequest) -> ModelReply | Failure:
        """Call the function once."""
        try:
            told = await call_apart(self.function, request.messages[-1].text)
        except Exception as error:  # noqa: BLE001 # the wrapper of a port: theirs is a value
            return replace(failure_of(error), blame="infrastructure")
        rows = told if is_list(told) else [told]
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
    """New text in a reply: between tags, in a fence, or the whole; None if a tag is unmatched."""
    tagged = _between(said, *_TAGGED)
    if tagged is None:
        # search from the last opening tag: a reply may mention the tag before it uses it
        opening, closing = _TAGS
        end = said.rfind(closing)
        start = said.rfind(opening, 0, max(end, 0))
        tagged = None if start < 0 else said[start + len(opening) : end]
    if tagged is not None:
        return tagged.strip()
    fenced = _between(said, *_FENCED)
    text = (said if fenced is None else fenced).strip()
    return None if any(tag in text for tag in _TAGS) else text


def _between(said: str, opening: re.Pattern[str], closing: re.Pattern[str]) -> str | None:
    """Text from the first opening match to the last closing match."""
    start = opening.search(said)
    ends = [found.start() for found in closing.finditer(said)]
    if start is None or not ends or ends[-1] < start.end():
        return None
    return said[start.end() : ends[-1]]


def _refused(brief: Brief, component: str) -> Iterator[tuple[ClosedStep, str]]:
    """Refused texts of a component, each once, the latest first."""
    told: set[str] = set()
    for step in reversed(brief.history):
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


FILE = "component.md"


def component_prompt(terms: Mapping[str, object], *, asked: bool = True) -> str:
    """Prompt for the author of a call: from the folder `prompts`, if given, else the built-in one.

    Args:
        terms: arguments of the call.
        asked: True if the call names a model that uses the prompt.
    """
    given = cast("str | Path | None", terms.get("prompts"))
    if given is None:
        return prompt("component")
    if not asked:
        raise SetupError(
            "`prompts` is for a `reflection_lm`", hint="give that too, or leave it out"
        )
    file = Path(given) / FILE
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        hint = f"`kept prompts copy {given} component` makes it"
        raise SetupError(f"cannot read {file}: {why}", hint=hint) from error
    if not text.strip():
        raise SetupError(f"{file} is empty", hint="delete it, and leave `prompts` out")
    for line, words in strange_places("component", text):
        message = f"{file}:{line} `{words}` is no placeholder of the prompt `component`"
        raise SetupError(message, hint="it has none")
    return text


@dataclass(frozen=True, slots=True)
class Reflecting:
    """Implements `kept.core.ports.Proposer`."""

    author: Author
    components: tuple[str, ...]
    size: int = 3
    """Number of train cases shown per step; a new sample in every step."""
    whole: bool = False
    """True if all components are rewritten at once, and not one per step."""
    perfect: float | None = None
    """Metric value at which a case needs no improvement."""
    name: str = "reflect"
    serial: bool = False
    builds: bool = True

    async def propose(self, brief: Brief, scope: Scope) -> ProposerReply:
        """Propose new texts, after feedback rollouts of the incumbent on some train cases."""
        if not brief.answers:
            drawn = random.Random(brief.seed).sample(brief.train, self.most_asked(brief.train))
            pairs = tuple(Pair(case.id, 0) for case in drawn)
            return Ask(brief.incumbent.id, pairs, "feedback")
        outcomes, traces = brief.answers[0].outcomes, brief.answers[0].traces
        # if every rollout failed without the candidate's fault, report the outage
        failures = (outcome.failure for outcome in outcomes.values())
        outages = [one for one in failures if one is not None and one.blame != "candidate"]
        if outages and len(outages) == len(outcomes):
            return outages[0]
        wrong = [pair.case for pair, outcome in outcomes.items() if not self._well(brief, outcome)]
        if not wrong:
            # only a perfect incumbent ends the proposals; a promising candidate does not lead yet
            everything = len(outcomes) == len(brief.train) and brief.parent is None
            return Skip("each case that was looked at has the perfect score", exhausted=everything)
        work = Work(brief, self._turn(brief), _records(brief, outcomes, traces))
        if not any(work.records[component] for component in work.components):
            return Skip(f"nothing was recorded of {', '.join(work.components)}")
        written = await self.author.write(work, scope)
        return written if isinstance(written, Failure) else _proposal(brief, written, wrong)

    def most_asked(self, train: tuple[Case, ...]) -> int:
        """Number of cases requested first in each step."""
        return min(self.size, len(train))

    def _turn(self, brief: Brief) -> tuple[str, ...]:
        if self.whole:
            return self.components
        return (self.components[brief.turn.number % len(self.components)],)

    def _well(self, brief: Brief, outcome: Outcome) -> bool:
        if self.perfect is None or outcome.failure is not None:
            return False
        return outcome.metrics.get(brief.objective.metric, self.perfect - 1) >= self.perfect


def _records(
    brief: Brief,
    outcomes: Mapping[Pair, Outcome],
    traces: Mapping[Pair, tuple[TraceItem, ...]],
) -> dict[str, list[Record]]:
    """Records by component; a failure that the candidate caused is listed under all of them."""
    found: dict[str, list[Record]] = {name: [] for name in brief.incumbent.texts}
    for pair, outcome in outcomes.items():
        for name, rows in found.items():
            rows += records_in(traces.get(pair, ()), name)
            if outcome.failure is not None and outcome.failure.blame == "candidate":
                rows.append({"case": pair.case, "failed": outcome.failure.message})
    return found


def _proposal(brief: Brief, written: Written, wrong: list[str]) -> ProposerReply:
    before = brief.incumbent.texts
    new = {n: text for n, text in written.texts.items() if text.strip() != before[n].strip()}
    empty = [name for name, text in new.items() if not text.strip()]
    if empty:
        return Failure("empty", "infrastructure", f"the new text of `{empty[0]}` is empty")
    if not new:
        return Skip("nothing would change")
    edits: list[Write] = []
    for name, text in new.items():
        # keep the final newline as before: the author was not asked about it
        cut = before[name].endswith("\n") and not text.endswith("\n")
        edits.append(Write(name, f"{text}\n" if cut else text))
    why = f"{', '.join(new)} written anew after a look at {', '.join(wrong)}"
    return Proposal(tuple(edits), why, tuple(wrong), unseen=written.unseen)


def author_of(
    lm: str | Callable[..., Any], terms: OwnTerms, settings: Mapping[str, Any] | None = None
) -> ModelAuthor:
    """Author for a model or function; refuse a limit in USD that could not be enforced."""
    if not isinstance(lm, str):
        return ModelAuthor(CallableModel(lm, usd=usd_per_call(terms)))
    config = replace(config_of(lm), **(settings or {}))
    if limited(terms) and unbounded(config) is not None:
        message = f"what a call of `{config.name}` costs at most is not known"
        hint = "leave `max_usd` out, or give a function and its `usd_per_call`"
        raise SetupError(message, hint=hint)
    return ModelAuthor(connect(config), room_of(config))


def usd_per_call(terms: OwnTerms) -> float | None:
    """Declared highest cost per call of a function; required if there is a limit in USD."""
    price = terms.get("usd_per_call")
    if price is None and limited(terms):
        message = "what a function that writes costs is not known, so `max_usd` could not be kept"
        hint = "give `usd_per_call`, the most that one call of it may cost"
        raise SetupError(message, hint=hint)
    return price


def limited(terms: OwnTerms) -> bool:
    """True if there is a limit in USD."""
    budget = limits_of(terms)
    return budget is not None and budget.max_usd is not None
