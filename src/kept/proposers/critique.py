"""Improvement of one text by two models: a critic diagnoses, an applier rewrites.

The critic is shown train cases that went wrong, and diagnoses; it does not write. A diagnosis that
it has little faith in ends the step there, before anything is measured. The applier is shown the
text and the diagnosis alone. What it writes is taken as it is or not at all, and never cut.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

from kept.core.artifact import NoSpan
from kept.core.case import Case
from kept.core.edit import line_counts
from kept.core.llm import ModelReply
from kept.core.ports import Scope
from kept.core.proposal import (
    DROPPED_CITATIONS,
    USELESS,
    Ask,
    Brief,
    Proposal,
    ProposerReply,
    Skip,
)
from kept.core.rollout import Failure, Pair
from kept.core.text import count
from kept.models.ask import ask
from kept.models.context_window import tokens_of
from kept.models.structured_output import having_said, problem_with
from kept.proposers.failing_cases import Looked, failing_items, look
from kept.proposers.few_shot import LAYOUT
from kept.proposers.llm import Asked, Heard, ask_fitted, once_more
from kept.proposers.prompt_items import UNTOLD, Item, verdict_of
from kept.proposers.text_units import TextAxis

REMEMBERED = 3
"""Number of unsuccessful diagnoses that the critic is shown."""

LOOKS = 3
"""Sweeps over the train cases without a failure before the proposer gives up."""

SLACK = 512
"""Tokens of an applier's reply besides the new text."""

_TEXT: Mapping[str, object] = {"type": "string"}
_TEXTS: Mapping[str, object] = {"type": "array", "items": _TEXT}
DIAGNOSIS: Mapping[str, object] = {
    "type": "object",
    "required": [
        "failing_pattern",
        "root_cause_hypothesis",
        "suggested_change_direction",
        "confidence",
        "citations",
    ],
    "properties": {
        "failing_pattern": _TEXT,
        "root_cause_hypothesis": _TEXT,
        "suggested_change_direction": _TEXT,
        "confidence": {"type": "number", "minimum": 0, "maximum": 1},
        "citations": _TEXTS,
        "avoid": _TEXTS,
    },
}
"""Fields read from a critic's reply; other fields are ignored."""
EDIT_TYPES = ("insert", "replace", "delete", "restructure")
REVISION: Mapping[str, object] = {
    "type": "object",
    "required": ["edit_type", "rationale", "new_text", "diff_summary"],
    "properties": {
        "edit_type": {"enum": list(EDIT_TYPES)},
        "rationale": _TEXT,
        "new_text": _TEXT,
        "diff_summary": _TEXT,
    },
}
"""Fields read from an applier's reply."""

Further = Callable[[Mapping[str, str]], Mapping[str, str]]
"""Maps texts of a candidate to further texts for the critic, keyed by title."""


def _nothing_further(texts: Mapping[str, str]) -> Mapping[str, str]:
    return {}


class _Place(NamedTuple):
    """The text that a step is about."""

    axis: TextAxis
    text: str
    about: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Critique:
    """Implements `kept.core.ports.Proposer`, for the axis that the turn names."""

    axes: Mapping[str, TextAxis]
    """Text axes by their path in the spec."""
    critic: Asked
    applier: Asked
    min_confidence: float = 0.4
    max_failures: int = 10
    further: Further = _nothing_further
    name: str = "critique"
    serial: bool = False

    async def propose(self, brief: Brief, scope: Scope) -> ProposerReply:
        """Propose a change of one axis for one reason."""
        path = str(brief.turn.settings.get("axis") or next(iter(self.axes)))
        axis = self.axes[path]
        about = {"kind": "textual", "axis": path}
        text = axis.read(brief.incumbent.texts)
        if isinstance(text, NoSpan):
            return Skip(f"`{path}` is not there: {text.detail}", about=about)
        if brief.train and not brief.answers:
            pairs = tuple(Pair(case.id, 0) for case in brief.train)
            return Ask(brief.incumbent.id, pairs, "feedback")
        looked = look(brief)
        if not looked.failing:
            looks = len(brief.answers)
            if looks < LOOKS and not looked.missing and brief.train:
                # a single rollout of each case can miss failures that happen now and then
                pairs = tuple(Pair(case.id, looks) for case in brief.train)
                return Ask(brief.incumbent.id, pairs, "feedback")
            if looked.missing:
                missing = f"{count(looked.missing, 'case')} could not be run"
                return Skip(f"no case that could be looked at went wrong; {missing}", about=about)
            return Skip(
                "every train case passes: nothing to diagnose", ends="exhausted", about=about
            )
        place = _Place(axis, text, about)
        items = [*self._items(brief, place, looked)]
        critic = _drawn(self.critic, brief)
        critic = _using(critic, lambda text: problem_with(json.loads(text), DIAGNOSIS) is None)
        heard = await ask_fitted(critic, items, scope)
        if isinstance(heard, Failure):
            return _unheard(heard, "critic", about)
        said = cast("dict[str, Any]", json.loads(heard.reply.text))
        if wrong := problem_with(said, DIAGNOSIS):
            return _useless(f"the critic's reply could not be used, {wrong}", "critic", about)
        told = {"model": self.critic.model.name, **_only(said, DIAGNOSIS)}
        told |= _citations(said, brief)
        place = place._replace(about={**about, "critic": told})
        if said["confidence"] < self.min_confidence:
            limit = f"{said['confidence']:g}, {self.min_confidence:g} needed"
            return Skip(f"low confidence in the diagnosis: {limit}", about=place.about)
        return await self._apply(brief, place, heard, scope)

    def most_asked(self, train: tuple[Case, ...]) -> int:
        """Number of rollouts per incumbent: every sweep that may look for a failure."""
        return LOOKS * len(train)

    def _items(self, brief: Brief, place: _Place, looked: Looked) -> Iterator[Item]:
        failing = failing_items(looked.failing, self.max_failures, brief.seed)
        ran = len(looked.failing) + len(looked.passing)
        told = f"{count(len(looked.failing), 'case')} of {ran} did not pass"
        told += "." if len(failing) == len(looked.failing) else f"; you are shown {len(failing)}."
        yield _limits(place, told)
        yield _present(place)
        yield from failing
        if tail := place.text[len(_body(place.text)) :].strip():
            yield Item(
                "further text", "# The examples behind the text, which stay as they are", tail
            )
        yield from _refused(brief, self.name, place.axis.path)
        for title, text in self.further(brief.incumbent.texts).items():
            if text.strip() != place.text.strip():
                yield Item("further text", f"# {title}, which stays as it is", text)

    async def _apply(
        self, brief: Brief, place: _Place, diagnosed: Heard, scope: Scope
    ) -> ProposerReply:
        """Ask the applier to act on a diagnosis; retry once if its reply is unusable."""
        applier = _with_room(_drawn(self.applier, brief), place.axis)
        applier = _using(applier, lambda text: not _wrong(brief, place, ModelReply(text)))
        diagnosis = _diagnosis(cast("Mapping[str, Any]", place.about["critic"]))
        items = (
            _limits(place),
            _present(place),
            _needed("diagnosis", "# The diagnosis", diagnosis),
        )
        heard = await ask_fitted(applier, items, scope)
        if isinstance(heard, Failure):
            return _unheard(heard, "applier", place.about)
        reply = heard.reply
        wrong = _wrong(brief, place, reply)
        if wrong:
            words = f"This cannot be used: {wrong}.\n\nAnswer again, with the whole text."
            request = once_more(heard.request, reply.text, words)
            again = await ask(scope, applier.model, request, rules=applier.rules)
            if isinstance(again, Failure):
                told = having_said(again, reply.text, wrong)
                return _unheard(told, "applier", place.about)
            reply, wrong = again, _wrong(brief, place, again)
        if wrong:
            words = f"the applier's text could not be used, twice: {wrong}"
            if _unfit(place, reply):
                return _useless(words, "applier", place.about)
            return Skip(words, about=place.about)  # valid, but nothing new
        return self._proposal(brief, place, reply, diagnosed)

    def _proposal(
        self, brief: Brief, place: _Place, reply: ModelReply, diagnosed: Heard
    ) -> Proposal:
        said = cast("dict[str, Any]", json.loads(reply.text))
        new = _ended(place.text, said["new_text"])
        removed, added = line_counts(place.text, new)
        told: dict[str, object] = {"model": self.applier.model.name}
        told |= {name: value for name, value in _only(said, REVISION).items() if name != "new_text"}
        told |= {"diff_lines_added": added, "diff_lines_removed": removed}
        critic = cast("Mapping[str, Any]", place.about["critic"])
        return Proposal(
            place.axis.edits(brief.incumbent.texts, new),
            why=said["rationale"].strip(),
            cites=tuple(critic["citations"]),
            unseen=diagnosed.shown.unseen,
            about={**place.about, "applier": told},
        )


def _drawn(asked: Asked, brief: Brief) -> Asked:
    # a new seed for each step, or the same failures would bring the same diagnosis
    return replace(asked, request=replace(asked.request, seed=brief.seed >> 17))


def _using(asked: Asked, usable: Callable[[str], bool]) -> Asked:
    """Copy of a request setup that accepts only usable replies."""
    return replace(asked, rules=replace(asked.rules, usable=usable))


def _with_room(asked: Asked, axis: TextAxis) -> Asked:
    """Copy with room for the longest text that the model may answer with."""
    limit = asked.request.max_tokens
    if limit is None:
        return asked
    most = max(limit, tokens_of("x" * axis.max_chars) + SLACK)
    return replace(asked, request=replace(asked.request, max_tokens=most))


def _unheard(failure: Failure, who: str, about: Mapping[str, object]) -> Skip | Failure:
    """Turn an unusable answer into a step without proposal; keep an outage a failure."""
    if failure.kind in ("parse", "refused"):
        return _useless(f"the {who} gave no answer of use: {failure.message}", who, about)
    return replace(failure, blame="infrastructure")


def _useless(words: str, who: str, about: Mapping[str, object]) -> Skip:
    return Skip(words, about={**about, USELESS: who})


def _only(said: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, object]:
    """Fields of a reply that the schema names."""
    return {name: said[name] for name in schema["properties"] if name in said}


def _citations(said: Mapping[str, Any], brief: Brief) -> dict[str, object]:
    """Cited cases that exist, and the number of citations dropped as unknown."""
    known = {case.id for case in brief.train}
    # headings show ids in backticks, and models copy them
    cited = dict.fromkeys(name.strip("` ") for name in said["citations"])
    found = [name for name in cited if name in known]
    return {"citations": found, DROPPED_CITATIONS: len(cited) - len(found)}


def _needed(what: str, title: str, text: str) -> Item:
    return Item(what, title, text, needed=True)


def _limits(place: _Place, more: str = "") -> Item:
    axis, size = place.axis, len(_body(place.text))
    lines = [
        f"The text is `{axis.path}` of an agent.",
        f"It has {size} characters, and may have {axis.max_chars} at most.",
        more,
    ]
    text = "\n".join(filter(None, lines))
    return Item("aim", "# What this is about", text, material=False, needed=True)


def _present(place: _Place) -> Item:
    return _needed("text", f"# The text of `{place.axis.path}` as it is now", _body(place.text))


def _diagnosis(critic: Mapping[str, Any]) -> str:
    lines = [
        f"failing pattern: {critic['failing_pattern']}",
        f"root cause: {critic['root_cause_hypothesis']}",
        f"direction of the change: {critic['suggested_change_direction']}",
        *(f"avoid: {one}" for one in critic.get("avoid", ())),
    ]
    return "\n".join(lines)


def _refused(brief: Brief, name: str, path: str) -> Iterator[Item]:
    """Last unsuccessful diagnoses of this text, latest first."""
    found = 0
    for step in reversed(brief.history.of(name)):
        if found >= REMEMBERED:
            return
        if step.proposal is None:
            continue
        told = step.verdict.outcome != "keep" and step.verdict.code not in UNTOLD
        if told and step.proposal.about.get("axis") == path:
            found += 1
            critic = cast("Mapping[str, Any]", step.proposal.about["critic"])
            text = f"{_diagnosis(critic)}\nverdict: {verdict_of(step)}"
            title = f"# A diagnosis that did not help, in step {step.step}"
            yield Item("refused diagnosis", title, text)


def _body(text: str) -> str:
    """Text without the examples at its end, which another phase changes."""
    region = LAYOUT.region(text)
    body = text.rstrip()
    return body.removesuffix(region).rstrip() if region else body


def _marks(text: str) -> tuple[int, int]:
    return text.count(LAYOUT.begin), text.count(LAYOUT.end)


def _ended(old: str, new: str) -> str:
    """New text with the old tail appended: examples, and the end of the last line."""
    return new.rstrip() + old[len(_body(old)) :]


def _unfit(place: _Place, reply: ModelReply) -> str:
    """Reason why a reply holds no valid text for this axis; empty if it does."""
    said = json.loads(reply.text)
    if problem := problem_with(said, REVISION):
        return problem
    axis, body = place.axis, said["new_text"].rstrip()
    if not body:
        return "the new text is empty"
    if len(body) > axis.max_chars:
        return f"the new text has {len(body)} characters, {axis.max_chars} allowed"
    # markers of the examples region may be neither added nor lost
    if _marks(body) != _marks(_body(place.text)):
        return (
            f"`{LAYOUT.begin}` and `{LAYOUT.end}` mark examples: no more and no fewer than before"
        )
    return ""


def _wrong(brief: Brief, place: _Place, reply: ModelReply) -> str:
    """Reason why a reply cannot be used; empty if it can."""
    if unfit := _unfit(place, reply):
        return unfit
    body = json.loads(reply.text)["new_text"].rstrip()
    if body.strip() == _body(place.text).strip():
        return "the new text is the same as the present one"
    edits = place.axis.edits(brief.incumbent.texts, _ended(place.text, body))
    # a verdict on the same edits and incumbent is known, unless its code says nothing (UNTOLD)
    for step in reversed(brief.history):
        same = step.proposal is not None and step.proposal.edits == edits
        if same and step.incumbent == brief.incumbent.id and step.verdict.code not in UNTOLD:
            return f"step {step.step} proposed this very text: {verdict_of(step)}"
    return ""
