"""A Python function as evaluator, and the scorer of runners that measure by themselves.

The function may be `f(candidate)` or `f(candidate, case)`, plain or async, and returns a number, a
mapping of metrics, or either with further information behind it.
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
"""HTTP answers, besides 5xx, that say `later`."""

_OF_THE_TEXT = (AssertionError, SyntaxError, subprocess.SubprocessError)
"""Exceptions that tell of the text: a check of it failed, or it is code that did not run."""

_NO_TEXT = ("<frozen ", "<stdin>", "<python-input-", "<ipython-input-")
"""Names that code without a file has in tracebacks, where it is Python's own or was typed in."""


class FunctionRunner:
    """Calls a function for every pair; plain functions run in threads."""

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
        """By case, what makes the copy of its data that each call is given."""

    async def run(
        self, job: Job, candidate: Candidate, case: Case, scope: Scope
    ) -> Rollout | Failure:
        """Call the function once."""
        # what a call does to its candidate or its case, no other call gets to see
        own = candidate.text if self.takes_text else candidate.copied()
        # where there are no cases, a second argument keeps the default that it has
        alone = case is IMPLICIT_CASE and self._has_default
        args = (own, self._own(case)) if self._takes_case and not alone else (own,)
        try:
            if self._timeout is None and self._threads is None:
                # not by `_call`: that is one more coroutine for every rollout
                answer = await self._function(*args)
            elif self._timeout is None:
                answer = await self._call(args)
            else:
                work = asyncio.ensure_future(self._call(args))
                try:
                    # not wait_for: its TimeoutError could not be told from one the user raised
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
            # a lambda round an async function, say, is no async function itself
            return await answer if inspect.isawaitable(answer) else answer
        except Exception:
            raise
        except BaseException as error:
            raise _tamed(error) from error

    def _own(self, case: Case) -> object:
        """The data of a case, for one call alone."""
        known = self._copiers.get(case.id)
        if known is None or known[0] is not case:
            known = self._copiers[case.id] = (case, copier(case.data))
        return case.data if known[1] is None else known[1]()

    async def close(self) -> None:
        """End the threads; one that is still in the user's code cannot be stopped, only left."""
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
    """Whose fault an exception is: an outage is nobody's, anything else the candidate's."""
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
    # a crash is of the text itself, and another text may repair it; any other exception ends the
    # run if it is raised on every case of the seed (decision 0150)
    frames = traceback.extract_tb(error.__traceback__)
    crashed = isinstance(error, _OF_THE_TEXT) or any(map(_ran_a_text, frames))
    kind = "crash" if crashed else "exception"
    return Failure(kind, "candidate", f"{message} ({place})" if place else message, detail)


def _ran_a_text(frame: traceback.FrameSummary) -> bool:
    """True if `exec` or `eval` ran here: such a candidate is code, and fails by itself."""
    # a dataclass makes its `__init__` with `exec`
    made = frame.filename.startswith("<") and frame.name != "__init__"
    return made and not frame.filename.startswith(_NO_TEXT)


def _tamed(error: BaseException) -> Tamed:
    """An exception that a task must not let through, as one that it may; raises what must pass.

    A task that lets it through takes the event loop with it, and so the whole run.
    """
    if isinstance(error, KeyboardInterrupt | GeneratorExit):
        raise error
    if isinstance(error, asyncio.CancelledError):
        me = asyncio.current_task()
        if me is None or me.cancelling():
            raise error
        # nobody cancelled us: something that the function waits for was cancelled
    return error if isinstance(error, Tamed) else Tamed(error)


def takes_text(function: Evaluate) -> bool:
    """True where the first parameter is annotated `str`, so that it is given the text."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    first = next(iter(parameters), None)
    # the name where annotations are not evaluated (`from __future__ import annotations`)
    return first is not None and first.annotation in (str, "str")


def _wants_case(function: Evaluate) -> tuple[bool, bool]:
    """Whether there is room for a case behind the candidate, and whether it can do without."""
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
    """A measure as a number; None for what is none."""
    # numpy scalars and the like have __float__; a string has not, and is no measure
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
    """The rollout's own metrics."""

    async def score(
        self, job: Job, rollout: Rollout, candidate: Candidate, case: Case, scope: Scope
    ) -> Score | Failure:
        """Take them as they are."""
        return make(Score, (rollout.metrics, (), (), None))

    async def close(self) -> None:
        """Nothing was opened."""
