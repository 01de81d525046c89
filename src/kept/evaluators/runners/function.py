"""Python function as evaluator, and the scorer of runners that measure by themselves.

The function is `f(candidate)` or `f(candidate, case)`, plain or async. It returns a number or a
mapping of metrics, optionally in a pair with further information.
"""

import asyncio
import inspect
import json
import subprocess
import traceback
from collections.abc import Callable, Mapping
from typing import Any, cast

from kept.core.artifact import Candidate
from kept.core.case import IMPLICIT_CASE, Case
from kept.core.containers import Copier, copier, make
from kept.core.ports import Scope
from kept.core.rollout import FREE, NO_FILES, Failure, Job, Rollout, TraceItem
from kept.core.score import Score
from kept.engine.user_code import LONGEST, Tamed, Threads, place_of, said_by
from kept.errors import KeptError

Evaluate = Callable[..., Any]

_PASSING = (408, 409, 425, 429)
"""HTTP status codes, besides 5xx, that are worth a retry."""

_OF_THE_TEXT = (AssertionError, SyntaxError, subprocess.SubprocessError)
"""Exceptions caused by the text: a failed check of it, or code that did not run."""

_NO_TEXT = ("<frozen ", "<stdin>", "<python-input-", "<ipython-input-")
"""File names in tracebacks of frozen modules and interactive input."""


class FunctionRunner:
    """Runner that calls a function for each candidate and case; plain ones run in threads."""

    def __init__(
        self, function: Evaluate, metric: str, workers: int, timeout: float | None = None
    ) -> None:
        self._function = function
        self._metric = metric
        self._timeout = timeout
        self._takes_case, self._has_default = _wants_case(function)
        self.takes_text = takes_text(function)
        self._awaits = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004 # the method itself is wanted
        )
        self._threads = None if self._awaits else Threads(workers)
        self._copiers: dict[str, tuple[Case, Copier | None]] = {}
        """Copiers by case; each call gets its own copy of the case data."""

    async def run(
        self, job: Job, candidate: Candidate, case: Case, scope: Scope
    ) -> Rollout | Failure:
        """Call the function once."""
        # each call gets copies, so that its changes do not affect other calls
        own = candidate.text if self.takes_text else candidate.copied()
        # without cases, a second parameter keeps its default
        alone = case is IMPLICIT_CASE and self._has_default
        args = (own, self._own(case)) if self._takes_case and not alone else (own,)
        try:
            if self._timeout is None and self._threads is None:
                # fast path: `_call` would add one coroutine per rollout
                answer = await self._function(*args)
            elif self._timeout is None:
                answer = await self._call(args)
            else:
                work = asyncio.ensure_future(self._call(args))
                try:
                    # not wait_for: its TimeoutError looks like one that the user raised
                    await asyncio.wait([work], timeout=self._timeout)
                finally:
                    late = not work.done()
                    if late:
                        work.cancel()
                        await asyncio.gather(work, return_exceptions=True)
                if late:
                    message = f"no answer within {self._timeout:g} s"
                    return Failure("timeout", "candidate", message)
                answer = work.result()
        except KeptError:
            raise
        except Exception as error:  # noqa: BLE001 # the port wrapper: a user's exception is a value
            return failure_of(error)
        except BaseException as error:  # noqa: BLE001 # what must pass is raised again in there
            return failure_of(_tamed(error))
        if type(answer) is float:
            return make(Rollout, ("", {self._metric: answer}, NO_FILES, (), FREE))
        return self._rollout(answer)

    async def _call(self, args: tuple[object, ...]) -> Any:  # noqa: ANN401 # the function's
        try:
            if self._threads is None:
                return await self._function(*args)
            answer = await self._threads.call(self._function, *args)
            # a lambda around an async function, for example, is itself not async
            return await answer if inspect.isawaitable(answer) else answer
        except Exception:
            raise
        except BaseException as error:
            raise _tamed(error) from error

    def _own(self, case: Case) -> object:
        """Copy of the case data for one call."""
        known = self._copiers.get(case.id)
        if known is None or known[0] is not case:
            known = self._copiers[case.id] = (case, copier(case.data))
        return case.data if known[1] is None else known[1]()

    async def close(self) -> None:
        """End the threads; one that still runs the user's code can only be abandoned."""
        if self._threads is not None:
            self._threads.close()

    def _rollout(self, answer: object) -> Rollout | Failure:
        info: object = None
        if isinstance(answer, Failure):
            return answer
        if isinstance(answer, tuple):
            pair = cast("tuple[object, ...]", answer)
            if len(pair) != 2:
                return _strange(pair)
            answer, info = pair
        if isinstance(answer, Mapping):
            metrics = {str(k): v for k, v in cast("Mapping[object, object]", answer).items()}
        else:
            metrics = {self._metric: answer}
        numbers = {name: number_of(value) for name, value in metrics.items()}
        strange = [name for name, value in numbers.items() if value is None]
        if strange and isinstance(answer, Mapping):
            value = _shown(metrics[strange[0]])
            message = f"evaluate returned {value} as `{strange[0]}`, which is no number: "
            message += "notes go behind the metrics, as in (metrics, notes)"
            return Failure("harness", "infrastructure", message)
        if strange:
            return _strange(cast("object", answer))
        measured = {name: value for name, value in numbers.items() if value is not None}
        return Rollout(metrics=measured, trace=_trace(info))


def failure_of(error: Exception) -> Failure:
    """Turn an exception into a failure: outages blame the infrastructure, others the candidate."""
    message = said_by(error)
    place = place_of(error)
    try:
        detail = "".join(traceback.format_exception(error)[-3:])[-4 * LONGEST :]
    except Exception:  # noqa: BLE001 # the port wrapper: an exception may fail to tell of itself
        detail = ""
    status = getattr(error, "status_code", None) or getattr(error, "status", None)
    if isinstance(status, int) and (status in _PASSING or status >= 500):
        kind = "rate_limit" if status == 429 else "server"
        return Failure(kind, "infrastructure", message, detail)
    if isinstance(error, (ConnectionError, TimeoutError)):
        return Failure("network", "infrastructure", message, detail)
    # a crash is caused by the text, so another text may fix it; any other exception ends the
    # run if it is raised on every case of the seed (decision 0150)
    frames = traceback.extract_tb(error.__traceback__)
    crashed = isinstance(error, _OF_THE_TEXT) or any(map(_ran_a_text, frames))
    kind = "crash" if crashed else "exception"
    return Failure(kind, "candidate", f"{message} ({place})" if place else message, detail)


def _ran_a_text(frame: traceback.FrameSummary) -> bool:
    """True if `exec` or `eval` ran here: the candidate is code and its own fault."""
    # dataclasses create `__init__` with `exec`
    made = frame.filename.startswith("<") and frame.name != "__init__"
    return made and not frame.filename.startswith(_NO_TEXT)


def _tamed(error: BaseException) -> Tamed:
    """Wrap a `BaseException` so that a task may raise it; re-raise those that must pass.

    A task that raised it unwrapped would end the event loop, and so the whole run.
    """
    if isinstance(error, KeyboardInterrupt | GeneratorExit):
        raise error
    if isinstance(error, asyncio.CancelledError):
        me = asyncio.current_task()
        if me is None or me.cancelling():
            raise error
        # not this task: something that the function awaits was cancelled
    return error if isinstance(error, Tamed) else Tamed(error)


def takes_text(function: Evaluate) -> bool:
    """True if the first parameter is annotated `str`, so that it gets the text."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    first = next(iter(parameters), None)
    # a name if annotations are not evaluated (`from __future__ import annotations`)
    return first is not None and first.annotation in (str, "str")


def _wants_case(function: Evaluate) -> tuple[bool, bool]:
    """Two flags: the function takes a case after the candidate; that parameter has a default."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False, False
    positional = [
        p
        for p in parameters
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.VAR_POSITIONAL)
    ]
    if any(p.kind == p.VAR_POSITIONAL for p in positional[:2]):
        return True, False
    return len(positional) >= 2, len(positional) >= 2 and positional[
        1
    ].default is not inspect.Parameter.empty


def number_of(value: object) -> float | None:
    """Convert a metric to a number; None if it is none."""
    # numpy scalars and the like have __float__; strings are refused although `float` reads them
    if isinstance(value, str | bytes) or value is None:
        return None
    try:
        return float(value)  # pyright: ignore[reportArgumentType] # asked of anything, refused below
    except Exception:  # noqa: BLE001 # the port wrapper: a tensor of two raises what it likes
        return None


def _strange(answer: object) -> Failure:
    message = f"evaluate returned {_shown(answer)}, not a number, metrics, or (number, info)"
    return Failure("harness", "infrastructure", message)


def _shown(value: object) -> str:
    return _whole(value)[:200]


def _whole(value: object) -> str:
    try:
        return repr(value)
    except Exception:  # noqa: BLE001 # the port wrapper: a user's object may have a broken repr
        return f"a {type(value).__qualname__} that cannot be shown"


def _trace(info: object) -> tuple[TraceItem, ...]:
    if info is None:
        return ()
    try:
        text = info if isinstance(info, str) else json.dumps(info, ensure_ascii=False, default=repr)
    except Exception:  # noqa: BLE001 # the port wrapper: information may hold anything
        text = _whole(info)
    return (TraceItem("info", text),)


class RecordedScorer:
    """Scorer that returns the rollout's own metrics."""

    async def score(
        self, job: Job, rollout: Rollout, candidate: Candidate, case: Case, scope: Scope
    ) -> Score | Failure:
        """Return the metrics unchanged."""
        return make(Score, (rollout.metrics, (), (), None))

    async def close(self) -> None:
        """Do nothing: nothing was opened."""
