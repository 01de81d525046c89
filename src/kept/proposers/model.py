"""A model that proposes: it reads the texts, what went wrong and what was tried, and answers.

The incumbent is run on a few train cases first. What does not fit into the model's window is left
out by whole items, and the proposal says so. Edits that cannot be made are shown to the model once
more, with the reason of each. Nothing is remembered between briefs.
"""

import json
import random
from dataclasses import dataclass, replace

from kept.core.artifact import Candidate
from kept.core.case import Case
from kept.core.edit import apply_edits, changed_lines, changed_paths
from kept.core.model import Message, ModelReply, ModelRequest
from kept.core.ports import Model, Scope
from kept.core.proposal import Ask, Brief, Proposal, ProposerReply, Skip
from kept.core.rollout import Failure, Pair
from kept.core.words import count
from kept.models.asking import ask
from kept.models.structured import having_said
from kept.models.window import tokens_of
from kept.prompts import filled
from kept.proposers.fitting import Fitted, fit
from kept.proposers.forms import EDIT, Draft, Form
from kept.proposers.showing import UNTOLD, Sight, facts_of, items_of, verdict_of

MAX_WHY = 2000


@dataclass(frozen=True, slots=True)
class ModelProposer:
    """Implements `kept.core.ports.Proposer`."""

    model: Model
    prompt: str
    sight: Sight
    form: Form = EDIT
    room: int | None = None
    """Tokens that a request may have; None where that is not known."""
    name: str = "edit"
    serial: bool = False

    @property
    def builds(self) -> bool:
        """Unless it leaves something out: that is to be less than what leads, and no worse."""
        return not self.simplifies

    @property
    def simplifies(self) -> bool:
        """Whether it is after less text at no loss."""
        return self.form.simplifies

    async def propose(self, brief: Brief, scope: Scope) -> ProposerReply:
        """What the model would change."""
        wanted = self._wanted(brief)
        if wanted is not None and not brief.answers:
            return wanted
        asked = await self._ask(self._shown(brief), scope)
        if isinstance(asked, Failure):
            return replace(asked, blame="infrastructure")
        request, reply, shown = asked
        draft = self.form.read(reply.text)
        wrong = _wrong(brief, draft, self.form)
        if wrong:
            again = await ask(scope, self.model, _once_more(request, reply.text, wrong))
            # one that has no room for its own mistake may still have been half right
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
        """For each step, what it looks at first."""
        return min(self.sight.cases, len(train))

    def _shown(self, brief: Brief) -> Brief:
        """The brief with what the model is to see of it."""
        return brief

    def _wanted(self, brief: Brief) -> Ask | None:
        """Some train cases, others in every step, to be looked at first."""
        size = min(self.sight.cases, len(brief.train))
        if not size:
            return None
        drawn = random.Random(brief.seed).sample(brief.train, size)
        pairs = tuple(Pair(case.id, 0) for case in drawn)
        return Ask(brief.incumbent.id, pairs, "feedback")

    async def _ask(
        self, brief: Brief, scope: Scope
    ) -> tuple[ModelRequest, ModelReply, Fitted] | Failure:
        """Ask with all that fits; where that was too much after all, once more with half of it."""
        items = items_of(brief, self.sight)
        fixed = tokens_of(self._told(brief)) + tokens_of(json.dumps(self.form.schema))
        shown = fit(items, None if self.room is None else self.room - fixed)
        request = self._request(brief, shown)
        reply = await ask(scope, self.model, request)
        if isinstance(reply, Failure) and reply.kind == "context":
            half = fit(items, shown.tokens // 2)
            if len(half.items) < len(shown.items):
                shown, request = half, self._request(brief, half)
                reply = await ask(scope, self.model, request)
        return reply if isinstance(reply, Failure) else (request, reply, shown)

    def _told(self, brief: Brief) -> str:
        """The prompt, with the facts of the task that it asks for."""
        return filled(self.prompt, facts_of(brief))

    def _request(self, brief: Brief, shown: Fitted) -> ModelRequest:
        messages = (Message("system", self._told(brief)), Message("user", shown.message()))
        # another for each step, or steps that are open side by side would all propose the same
        return ModelRequest(messages, schema=self.form.schema, seed=brief.seed >> 17)


def _wrong(brief: Brief, draft: Draft, form: Form) -> list[str]:
    """Why the edits cannot be made, or are not worth it; nothing when they are."""
    rules = brief.rules
    applied = apply_edits(brief.incumbent, draft.edits, rules)
    told = [
        f"edit {n} ({report.edit.op} in {report.edit.path}): {report.fate}, {report.detail}"
        for n, report in enumerate(applied.reports, 1)
        if report.fate != "applied"
    ]
    # what it builds on counts too: both are judged as one change of what leads
    files = len(changed_paths(brief.ground, applied.candidate))
    if rules.max_files is not None and files > rules.max_files:
        told.append(f"{count(files, 'file')} would change, {rules.max_files} allowed")
    lines = changed_lines(brief.ground, applied.candidate)
    if rules.max_changed_lines is not None and lines > rules.max_changed_lines:
        told.append(f"{count(lines, 'line')} would change, {rules.max_changed_lines} allowed")
    if draft.edits:
        told += form.faults(brief, applied.candidate)
    return [*told, *_seen_before(brief, applied.candidate)]


def _seen_before(brief: Brief, candidate: Candidate) -> list[str]:
    """That a step before this one came to the same texts, where one did."""
    for step in reversed(brief.closed):
        if step.candidate == candidate.id and step.verdict.code not in UNTOLD:
            return [f"together they make what step {step.step} made: {verdict_of(step)}"]
    return []


def _once_more(request: ModelRequest, said: str, wrong: list[str]) -> ModelRequest:
    listed = "\n".join(f"* {line}" for line in wrong)
    words = (
        f"This is wrong with these edits:\n{listed}\n\nAnswer again with all that you want made, "
        "also those that were right. Copy each target to the letter from the file as it is shown, "
        "and make it long enough to stand there only once."
    )
    messages = (*request.messages, Message("assistant", said), Message("user", words))
    return replace(request, messages=messages)
