"""A proposer that draws lines from a pool."""

import random
from dataclasses import dataclass

from kept.core.case import Case
from kept.core.edit import Append
from kept.core.model import Message, ModelReply, ModelRequest
from kept.core.ports import Model, Scope
from kept.core.proposal import Ask, Brief, Proposal, ProposerReply, Skip
from kept.core.rollout import Failure, Pair


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedProposer:
    """Implements `kept.core.ports.Proposer`; a function of its brief and nothing else."""

    lines: tuple[str, ...]
    """What it may add, one line a proposal, while the incumbent has not got it."""
    path: str = "text"
    name: str = "scripted"
    serial: bool = False
    model: Model | None = None
    """Asked once for every proposal, through the scope."""
    feedback: int = 0
    """Repeats of the train cases that it wants to see first."""

    async def propose(self, brief: Brief, scope: Scope) -> ProposerReply:
        """One more line, drawn by the brief's seed."""
        why = "drawn from the pool"
        if self.model is not None:
            reply = await self._consult(self.model, brief, scope)
            if isinstance(reply, Failure):
                return reply
            why = reply.text
        if self.feedback and not brief.answers:
            return self._ask(brief)
        present = set(brief.incumbent.texts.get(self.path, "").splitlines())
        left = [line for line in self.lines if line not in present]
        if not left:
            return Skip("every line of the pool is in the text", exhausted=True)
        line = random.Random(brief.seed).choice(left)
        return Proposal((Append(self.path, line + "\n"),), why=why)

    def most_asked(self, train: tuple[Case, ...]) -> int:
        """For each step, what it wants to see first."""
        return self.feedback * len(train)

    def _ask(self, brief: Brief) -> Ask:
        pairs = (Pair(case.id, n) for n in range(self.feedback) for case in brief.train)
        return Ask(brief.incumbent.id, tuple(pairs), "feedback")

    async def _consult(self, model: Model, brief: Brief, scope: Scope) -> ModelReply | Failure:
        text = f"step {brief.step}: what would you add to\n{brief.incumbent.texts[self.path]}"
        request = ModelRequest((Message("user", text),), seed=brief.seed)
        return await scope.call(request, ModelReply, lambda: model.complete(request))
