"""Model-based proposer: prompt, reply format, and one retry for invalid edits.

The incumbent first runs on a few train cases. The model then sees the texts, the failures and
earlier attempts. Items that do not fit into its window are dropped whole, and the proposal says
so. Edits that cannot be applied are sent back once, with the reason of each.

Each kind of proposer has one reply schema; the caller checks the effect of the edits. Nothing is
remembered between briefs.
"""

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

from kept.core.artifact import Candidate
from kept.core.case import Case
from kept.core.edit import (
    Append,
    Delete,
    Edit,
    InsertAfter,
    Replace,
    Write,
    apply_edits,
    changed_lines,
    changed_paths,
    not_shorter,
)
from kept.core.llm import Message, ModelReply, ModelRequest
from kept.core.ports import Model, Scope
from kept.core.proposal import Ask, Brief, Proposal, ProposerReply, Skip
from kept.core.rollout import Failure, Pair
from kept.core.text import count
from kept.models.ask import ask
from kept.models.context_window import tokens_of
from kept.models.prompts import filled
from kept.models.structured_output import ReplyRules, having_said
from kept.proposers.prompt_items import (
    UNTOLD,
    Fitted,
    Item,
    Sight,
    facts_of,
    fit,
    items_of,
    verdict_of,
)

OURS = ReplyRules(ignore_extra_keys=True)
"""Rules for schemas of Kept's own: keys that they do not name are ignored."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A model with the settings of its requests."""

    model: Model
    request: ModelRequest
    """Fields shared by all requests; its messages precede the shown items."""
    room: int | None = None
    """Tokens that a request may have; None if unknown."""
    rules: ReplyRules = OURS


class Heard(NamedTuple):
    """Final request, its reply, and the items that were shown."""

    request: ModelRequest
    reply: ModelReply
    shown: Fitted


async def ask_fitted(asked: Asked, items: Sequence[Item], scope: Scope) -> Heard | Failure:
    """Ask with all items that fit; on a context overflow, retry once with half of them."""
    told = asked.request
    fixed = sum(tokens_of(message.text) for message in told.messages)
    fixed += tokens_of(json.dumps(told.schema))
    shown = fit(items, None if asked.room is None else asked.room - fixed)
    request = _showing(told, shown)
    reply = await _ask(asked, request, scope)
    if isinstance(reply, Failure) and reply.kind == "context":
        half = fit(items, shown.tokens // 2)
        if len(half.items) < len(shown.items):
            shown, request = half, _showing(told, half)
            reply = await _ask(asked, request, scope)
    return reply if isinstance(reply, Failure) else Heard(request, reply, shown)


async def _ask(asked: Asked, request: ModelRequest, scope: Scope) -> ModelReply | Failure:
    return await ask(scope, asked.model, request, rules=asked.rules)


def once_more(request: ModelRequest, said: str, words: str) -> ModelRequest:
    """Request extended by an unusable answer and its problems."""
    more = (Message("assistant", said), Message("user", words))
    return replace(request, messages=(*request.messages, *more))


def _showing(told: ModelRequest, shown: Fitted) -> ModelRequest:
    return replace(told, messages=(*told.messages, shown.message()))


OPERATIONS = ("replace", "insert_after", "delete", "append", "write")


class Draft(NamedTuple):
    """Edits of a model's reply, with its reason and cited cases."""

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
    """Parse the edits of a reply."""
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
    """Parse the whole texts of a reply."""
    said = cast("dict[str, Any]", json.loads(text))
    edits = tuple(Write(row["path"], row["text"]) for row in said["files"])
    return Draft(edits, str(said["why"]).strip(), tuple(said["cases"]))


def _read_diagnosis(text: str) -> Draft:
    """Parse the edits of a reply; the diagnosis is appended to the reason."""
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
    """Reply format of one kind of model proposer."""

    schema: Mapping[str, Any]
    read: Callable[[str], Draft]
    simplifies: bool = False
    """True if its edits should shorten the text without loss of quality."""
    faults: Callable[[Brief, Candidate], Iterator[str]] = _nothing
    """Problems of the resulting candidate, besides those checked for all kinds."""


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


MAX_WHY = 2000


@dataclass(frozen=True, slots=True)
class ModelProposer:
    """Implements `kept.core.ports.Proposer`."""

    model: Model
    prompt: str
    sight: Sight
    form: Form = EDIT
    room: int | None = None
    """Tokens that a request may have; None if unknown."""
    name: str = "edit"
    serial: bool = False

    @property
    def builds(self) -> bool:
        """True unless it simplifies: a shorter text is compared with the incumbent itself."""
        return not self.simplifies

    @property
    def simplifies(self) -> bool:
        """True if it should shorten the text without loss of quality."""
        return self.form.simplifies

    async def propose(self, brief: Brief, scope: Scope) -> ProposerReply:
        """Ask the model for edits; retry once if they cannot be used."""
        wanted = self._wanted(brief)
        if wanted is not None and not brief.answers:
            return wanted
        seen = self._shown(brief)
        asked = self._asked(seen)

        def usable(text: str) -> bool:
            return not _wrong(brief, self.form.read(text), self.form)

        rules = replace(asked.rules, usable=usable)
        asked = replace(asked, rules=rules)
        heard = await ask_fitted(asked, items_of(seen, self.sight), scope)
        if isinstance(heard, Failure):
            return replace(heard, blame="infrastructure")
        request, reply, shown = heard
        draft = self.form.read(reply.text)
        wrong = _wrong(brief, draft, self.form)
        if wrong:
            request = once_more(request, reply.text, _words(wrong))
            again = await ask(scope, self.model, request, rules=rules)
            # a retry that does not fit into the window: part of the first answer may be right
            if isinstance(again, Failure) and again.kind != "context":
                told = having_said(again, reply.text, "; ".join(wrong))
                return replace(told, blame="infrastructure")
            if isinstance(again, ModelReply):
                draft = self.form.read(again.text)
        if not draft.edits:
            why = draft.why[:MAX_WHY] or "no edits"
            return Skip(" ".join(filter(None, (why, shown.unseen))))
        known = {case.id for case in brief.train}
        cites = tuple(dict.fromkeys(case for case in draft.cases if case in known))
        why, simplifies = draft.why[:MAX_WHY], self.form.simplifies
        return Proposal(draft.edits, why, cites, simplifies, unseen=shown.unseen)

    def most_asked(self, train: tuple[Case, ...]) -> int:
        """Number of rollouts per step that it looks at first."""
        return min(self.sight.cases, len(train))

    def _shown(self, brief: Brief) -> Brief:
        """Brief restricted to what the model may see."""
        return brief

    def _wanted(self, brief: Brief) -> Ask | None:
        """Request for rollouts of some train cases, a new sample in each step."""
        size = min(self.sight.cases, len(brief.train))
        if not size:
            return None
        drawn = random.Random(brief.seed).sample(brief.train, size)
        pairs = tuple(Pair(case.id, 0) for case in drawn)
        return Ask(brief.incumbent.id, pairs, "feedback")

    def _told(self, brief: Brief) -> str:
        """Prompt with the placeholders of the task filled in."""
        return filled(self.prompt, facts_of(brief))

    def _asked(self, brief: Brief) -> Asked:
        told = (Message("system", self._told(brief)),)
        # a new seed for each step, or concurrent steps would all propose the same
        request = ModelRequest(told, schema=self.form.schema, seed=brief.seed >> 17)
        return Asked(self.model, request, self.room)


def _wrong(brief: Brief, draft: Draft, form: Form) -> list[str]:
    """Reasons why the edits cannot be made or are not worth it; empty if there are none."""
    rules = brief.rules
    applied = apply_edits(brief.incumbent, draft.edits, rules)
    told = [
        f"edit {n} ({report.edit.op} in {report.edit.path}): {report.fate}, {report.detail}"
        for n, report in enumerate(applied.reports, 1)
        if report.fate != "applied"
    ]
    # the step it builds on counts too: both are judged as one change of the incumbent
    files = len(changed_paths(brief.ground, applied.candidate))
    if rules.max_files is not None and files > rules.max_files:
        told.append(f"{count(files, 'file')} would change, {rules.max_files} allowed")
    lines = changed_lines(brief.ground, applied.candidate)
    if rules.max_changed_lines is not None and lines > rules.max_changed_lines:
        told.append(f"{count(lines, 'line')} would change, {rules.max_changed_lines} allowed")
    if draft.edits:
        told += form.faults(brief, applied.candidate)
    for step in reversed(brief.history):
        if step.candidate == applied.candidate.id and step.verdict.code not in UNTOLD:
            told.append(f"together they make what step {step.step} made: {verdict_of(step)}")
            break
    return told


def _words(wrong: list[str]) -> str:
    listed = "\n".join(f"* {line}" for line in wrong)
    return (
        f"This is wrong with these edits:\n{listed}\n\nAnswer again with all that you want made, "
        "also those that were right. Copy each target to the letter from the file as it is shown, "
        "and make it long enough to stand there only once."
    )
