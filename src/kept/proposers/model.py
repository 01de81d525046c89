"""A model that proposes: it reads the texts, what went wrong and what was tried, and answers.

The incumbent is run on a few train cases first. What does not fit into the model's window is left
out by whole items, and the proposal says so. Edits that cannot be made are shown to the model once
more, with the reason of each. Nothing is remembered between briefs.
"""

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
from kept.models.ask import ask
from kept.models.prompts import filled
from kept.models.structured_output import having_said
from kept.proposers.asking import Asked, ask_fitted, once_more
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

    def _told(self, brief: Brief) -> str:
        """The prompt, with the facts of the task that it asks for."""
        return filled(self.prompt, facts_of(brief))

    def _asked(self, brief: Brief) -> Asked:
        told = (Message("system", self._told(brief)),)
        # another for each step, or steps that are open side by side would all propose the same
        request = ModelRequest(told, schema=self.form.schema, seed=brief.seed >> 17)
        return Asked(self.model, request, self.room)


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


def _words(wrong: list[str]) -> str:
    listed = "\n".join(f"* {line}" for line in wrong)
    return (
        f"This is wrong with these edits:\n{listed}\n\nAnswer again with all that you want made, "
        "also those that were right. Copy each target to the letter from the file as it is shown, "
        "and make it long enough to stand there only once."
    )
