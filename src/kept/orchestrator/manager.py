"""The manager: asked for one decision a turn, and asked again where what it wrote is none."""

from collections.abc import Sequence
from dataclasses import dataclass

from kept.core.model import Message, ModelRequest
from kept.core.ports import Model
from kept.core.rollout import Failure
from kept.models.ask import ask
from kept.models.structured_output import ReplyRules
from kept.orchestrator.budget import Metered
from kept.orchestrator.decisions import BadDecision, Decided, Ground, decided

MOST_ANSWERS = 3
"""That are no decision, in one turn; then there will be none."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What one turn of the manager came to."""

    decided: Decided | None
    """None where nothing that it wrote was a decision, or nothing could be asked."""
    garbage: tuple[str, ...] = ()
    """What was wrong with each answer that was none."""
    refused: str = ""
    """Why it could not be asked any more; empty where it could."""


async def decide(
    model: Model, messages: Sequence[Message], ground: Ground, scope: Metered
) -> Turn | Failure:
    """Have it decide; a `Failure` is one of infrastructure."""

    def usable(text: str) -> bool:
        try:
            decided(text, ground)
        except BadDecision:
            return False
        return True

    said, rules = tuple(messages), ReplyRules(usable=usable)
    garbage: list[str] = []
    while len(garbage) < MOST_ANSWERS:
        request = ModelRequest(said, max_tokens=scope.account.longest_reply)
        reply = await ask(scope, model, request, rules=rules)
        if isinstance(reply, Failure) and reply.blame == "infrastructure":
            return reply
        if isinstance(reply, Failure) and reply.kind in ("limit", "timeout"):
            return Turn(None, tuple(garbage), reply.message)
        if isinstance(reply, Failure):
            answer, wrong = "", reply.message
            garbage.append(wrong)
        else:
            try:
                return Turn(decided(reply.text, ground), tuple(garbage))
            except BadDecision as error:
                answer, wrong = reply.text, str(error)
                garbage.append(wrong)
        again = f"That is no decision: {wrong}\nAnswer again, with the one JSON object only."
        said = (*said, Message("assistant", answer or "(nothing)"), Message("user", again))
    return Turn(None, tuple(garbage))
