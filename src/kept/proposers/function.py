"""A Python function as proposer.

It gets the brief and answers with a new text, a mapping of texts, a `Candidate`, a `Proposal`, or
None when it has nothing to propose.
"""

import inspect
import resource
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, cast

from kept.core.artifact import Candidate
from kept.core.case import Case
from kept.core.containers import copier
from kept.core.edit import Write
from kept.core.ports import Scope
from kept.core.proposal import Ask, Brief, Note, Proposal, ProposerReply, Skip
from kept.core.rollout import Failure
from kept.engine.budget import Halt
from kept.engine.user_code import call_apart, place_of, said_by
from kept.errors import KeptError

QUICK = 0.005
"""Seconds for which a function may block the event loop."""


_REPLIES = (Proposal, Note, Skip, Ask, Failure)


class FunctionProposer:
    """Calls a function for every brief."""

    serial = True

    def __init__(self, function: Callable[..., Any], name: str | None = None) -> None:
        self._function = function
        second = [*inspect.signature(function).parameters.values()][1:2]
        # a second parameter with a default and another name is the function's own setting
        self._takes_scope = any(p.default is p.empty or p.name == "scope" for p in second)
        self._awaits = inspect.iscoroutinefunction(function)
        self.name = name or getattr(function, "__name__", "function")
        # a cache and no state: it changes where the function runs, not what it answers
        self._quick: bool | None = None
        """None until a call was quick; False for good once a call blocked the event loop."""
        self._train: tuple[tuple[Case, ...], tuple[Case, ...]] = ((), ())
        """Train cases of the last brief, and the copies that the function gets for them."""

    async def _call(self, args: tuple[object, ...]) -> Any:  # noqa: ANN401 # the function's
        """Call a plain function: in a thread, unless it has always been quick.

        A function that asks a model would block every running rollout. For one that only picks a
        random number, a thread costs more than all the rest of its step.
        """
        if self._quick:
            return self._timed(*args)
        return await call_apart(self._timed, *args)

    def _timed(self, *args: object) -> Any:  # noqa: ANN401 # the function's
        began, worked, waited = time.perf_counter(), time.thread_time(), _waits()
        try:
            return self._function(*args)
        finally:
            slow = time.perf_counter() - began > QUICK
            # wall time is unreliable on a busy machine: it must also have worked long, or waited
            slow = slow and (time.thread_time() - worked > QUICK or _waits() > waited)
            if self._quick is None:
                self._quick = None if slow else True
            elif slow:
                self._quick = False

    def _seen(self, brief: Brief) -> Brief:
        """Copy of the brief, so that changes made by the function reach no rollout.

        Cases are copied once for all its briefs, since there may be thousands.
        """
        if self._train[0] is not brief.train:
            makers = [copier(case.data) for case in brief.train]
            own = (
                Case(case.id, make()) if make else case
                for case, make in zip(brief.train, makers, strict=True)
            )
            self._train = (brief.train, tuple(own) if any(makers) else brief.train)
        parent = brief.parent and replace(brief.parent, incumbent=brief.ground.copied())
        incumbent = brief.incumbent.copied()
        return replace(brief, train=self._train[1], incumbent=incumbent, parent=parent)

    async def propose(self, brief: Brief, scope: Scope) -> ProposerReply:
        """Call the function and return its answer as edits."""
        seen = self._seen(brief)
        args = (seen, scope) if self._takes_scope else (seen,)
        try:
            answer = await (self._function(*args) if self._awaits else self._call(args))
            if not isinstance(answer, _REPLIES) and inspect.isawaitable(answer):
                answer = await answer
        except (KeptError, Halt):
            raise
        except Exception as error:  # noqa: BLE001 # the port wrapper: a proposer's bug is a value
            place = place_of(error)
            message = f"{said_by(error)} ({place})" if place else said_by(error)
            return Failure("crash", "infrastructure", message)
        if isinstance(answer, _REPLIES):
            return answer
        if answer is None:
            return Skip("nothing to propose")
        if isinstance(answer, Candidate):
            answer = _changed(answer, brief.incumbent)
            if isinstance(answer, Failure):
                return answer
        if isinstance(answer, str):
            path = next(iter(brief.incumbent.texts))
            if len(brief.incumbent.texts) > 1:
                message = (
                    "it returned one text, and there are several: return a mapping of "
                    f"{_named(brief.incumbent.texts)}"
                )
                return Failure("parse", "infrastructure", message)
            return Proposal((Write(path, answer),))
        if isinstance(answer, Mapping):
            texts = cast("Mapping[str, object]", answer)
            if not all(isinstance(text, str) for text in texts.values()):
                return _strange(texts)
            texts = cast("Mapping[str, str]", answer)
            return Proposal(tuple(Write(path, text) for path, text in texts.items()))
        return _strange(answer)


def _waits() -> int:
    """Number of context switches by waiting: of this thread on Linux, else of the process."""
    whose = getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF)
    return resource.getrusage(whose).ru_nvcsw


def _changed(answer: Candidate, incumbent: Candidate) -> dict[str, str] | Failure:
    """Texts that differ from the incumbent; all of its texts if none does."""
    old = incumbent.texts
    if gone := sorted(old.keys() - answer.texts.keys()):
        message = f"the Candidate that it returned has no {_named(gone)}: no file can be taken away"
        return Failure("parse", "infrastructure", message)
    if dict(answer.blobs) != dict(incumbent.blobs):
        message = "the Candidate that it returned has other blobs: only texts can be changed"
        return Failure("parse", "infrastructure", message)
    changed = {name: text for name, text in answer.texts.items() if old.get(name) != text}
    return changed or dict(old)


def _named(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _strange(answer: object) -> Failure:
    message = (
        f"it returned {answer!r:.200}: not a text such as `brief.incumbent.text + …`, texts by "
        "name, a Candidate or a Proposal"
    )
    return Failure("parse", "infrastructure", message)
