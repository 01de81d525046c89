"""What the server says next."""

import hashlib
from collections.abc import Callable, Sequence

from kept.core.model import ModelReply
from kept.core.rollout import FREE, Usage
from kept.testing.server.fault import Fault
from kept.testing.server.seen import Seen

Say = str | ModelReply | Fault
"""One answer of a script; a plain text is a reply whose usage is made up from its length."""

Replies = Sequence[Say] | Callable[[Seen], Say]
Faults = Sequence[Fault | None] | Callable[[Seen], Fault | None]


class Script:
    """Replies in order or by a function; faults come first, and the replies go on behind them."""

    def __init__(self, replies: Replies, faults: Faults) -> None:
        self._replies = replies
        self._faults = faults
        self._next = 0
        self._next_fault = 0

    def fault(self, seen: Seen) -> Fault | None:
        """What goes wrong with this request, if anything does."""
        if callable(self._faults):
            return self._faults(seen)
        self._next_fault += 1
        here = self._next_fault - 1
        return self._faults[here] if here < len(self._faults) else None

    def reply(self, seen: Seen) -> ModelReply | Fault:
        """What is said to this request."""
        say = self._say(seen)
        if isinstance(say, Fault):
            return say
        reply = ModelReply(say) if isinstance(say, str) else say
        if reply.usage is not FREE:
            return reply
        return ModelReply(reply.text, guess(seen, reply), reply.finish, reply.tool_calls)

    def _say(self, seen: Seen) -> Say:
        if callable(self._replies):
            return self._replies(seen)
        self._next += 1
        if self._next <= len(self._replies):
            return self._replies[self._next - 1]
        # an error that no client tries again
        return Fault("status", 400, f"the script ends after {len(self._replies)} replies")


def guess(seen: Seen, reply: ModelReply) -> Usage:
    """Tokens by the length of texts, about four characters each."""
    asked = sum(len(line.text) for line in seen.lines)
    said = len(reply.text) + sum(len(call.arguments) for call in reply.tool_calls)
    return Usage(calls=1, tokens_in=asked // 4 + 1, tokens_out=said // 4 + 1)


def id_of(seen: Seen, prefix: str) -> str:
    """A name for a reply that is the same in every run of the same script."""
    return prefix + hashlib.sha256(str(seen.number).encode()).hexdigest()[:24]


def pieces(text: str, size: int = 24) -> list[str]:
    """A text as it is streamed; an empty one in no pieces."""
    return [text[start : start + size] for start in range(0, len(text), size)]
