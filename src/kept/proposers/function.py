"""A Python function as proposer.

It gets the brief and answers with a new text, a mapping of texts, a `Proposal`, or None when it has
nothing to propose.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, cast

from kept.core.edit import Write
from kept.core.ports import Scope
from kept.core.proposal import Ask, Brief, Note, Proposal, ProposerReply, Skip
from kept.core.rollout import Failure
from kept.threads import call_apart


class FunctionProposer:
    """Calls a function for every brief."""

    serial = True

    def __init__(self, function: Callable[..., Any], name: str | None = None) -> None:
        self._function = function
        self._takes_scope = len(inspect.signature(function).parameters) >= 2
        self.name = name or getattr(function, "__name__", "function")

    async def propose(self, brief: Brief, scope: Scope) -> ProposerReply:
        """What the function says, as edits."""
        args = (brief, scope) if self._takes_scope else (brief,)
        if inspect.iscoroutinefunction(self._function):
            answer = await self._function(*args)
        else:
            # in a thread: a model called in here would hold up every rollout in flight
            answer = await call_apart(self._function, *args)
            if inspect.isawaitable(answer):
                answer = await answer
        if isinstance(answer, Proposal | Note | Skip | Ask | Failure):
            return answer
        if answer is None:
            return Skip("nothing to propose")
        if isinstance(answer, str):
            path = next(iter(brief.incumbent.texts))
            if len(brief.incumbent.texts) > 1:
                return _strange(answer)
            return Proposal((Write(path, answer),))
        if isinstance(answer, Mapping):
            texts = cast("Mapping[str, object]", answer)
            if not all(isinstance(text, str) for text in texts.values()):
                return _strange(texts)
            texts = cast("Mapping[str, str]", answer)
            return Proposal(tuple(Write(path, text) for path, text in texts.items()))
        return _strange(answer)


def _strange(answer: object) -> Failure:
    message = f"the proposer returned {answer!r:.200}: not a text, texts by name, or a Proposal"
    return Failure("parse", "infrastructure", message)
