"""A Python function as proposer.

It gets the brief and answers with a new text, a mapping of texts, a `Proposal`, or None when it has
nothing to propose.
"""

import inspect
import time
from collections.abc import Callable, Mapping
from typing import Any, cast

from kept.core.edit import Write
from kept.core.ports import Scope
from kept.core.proposal import Ask, Brief, Note, Proposal, ProposerReply, Skip
from kept.core.rollout import Failure
from kept.threads import call_apart

QUICK = 0.005
"""Seconds within which a function may hold up the event loop."""


class FunctionProposer:
    """Calls a function for every brief."""

    serial = True

    def __init__(self, function: Callable[..., Any], name: str | None = None) -> None:
        self._function = function
        self._takes_scope = _wants_scope(function)
        self.name = name or getattr(function, "__name__", "function")
        # a cache of what was seen, and no memory: it changes where the function runs, not what
        # it answers
        self._first = True
        self._slowest = float("inf")

    async def _call(self, args: tuple[object, ...]) -> Any:  # noqa: ANN401 # the function's
        """Call a plain function: in a thread, unless it has always been quick.

        One that asks a model would hold up every rollout in flight; for one that draws a number, a
        thread costs more than all the rest of its step.
        """
        if self._slowest > QUICK:
            return await call_apart(self._timed, *args)
        return self._timed(*args)

    def _timed(self, *args: object) -> Any:  # noqa: ANN401 # the function's
        began = time.perf_counter()
        try:
            return self._function(*args)
        finally:
            took = time.perf_counter() - began
            self._slowest = took if self._first else max(self._slowest, took)
            self._first = False

    async def propose(self, brief: Brief, scope: Scope) -> ProposerReply:
        """What the function says, as edits."""
        args = (brief, scope) if self._takes_scope else (brief,)
        if inspect.iscoroutinefunction(self._function):
            answer = await self._function(*args)
        else:
            answer = await self._call(args)
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


def _wants_scope(function: Callable[..., Any]) -> bool:
    """Whether its second argument is the scope, and not a setting of its own with a default."""
    second = [*inspect.signature(function).parameters.values()][1:2]
    return any(p.default is p.empty or p.name == "scope" for p in second)


def _strange(answer: object) -> Failure:
    message = f"it returned {answer!r:.200}: not a text, texts by name, or a Proposal"
    return Failure("parse", "infrastructure", message)
