"""Whose fault it is that a sample came to no score.

| what happened | kind | blame |
|---|---|---|
| a call to a model failed, as often as Inspect tries | that of `kept.models.trouble` | the same |
| a solver raised, or no task can be made of these texts | crash | candidate |
| a solver lost a connection, or was told 429 or 5xx | network, server | infrastructure |
| the sample did not begin: its sandbox, say | harness | infrastructure |
| a scorer raised | harness | infrastructure, unless it can score the incumbent |
"""

from dataclasses import replace
from typing import Any, cast

from kept.adapters.inspect.making import Changed
from kept.adapters.inspect.running import said
from kept.adapters.inspect.watching import Ask
from kept.core.rollout import Failure
from kept.errors import SetupError
from kept.evaluators.runners.function import LONGEST, failure_of
from kept.models.trouble import of_error, of_status


def unmade(error: BaseException, ask: Ask) -> Failure:
    """Of a sample that Inspect never had."""
    if isinstance(error, Changed | SetupError):
        return Failure("crash", "candidate", error.message)
    if error is ask.error:
        return _failure(error)
    return Failure("harness", "infrastructure", said(error)[:LONGEST])


def trouble_of(sample: Any, ask: Ask) -> Failure:  # noqa: ANN401 # an EvalSample
    """Of a sample that ended in an error."""
    scoring = ask.phase in ("solved", "scoring")
    asked = [event for event in sample.events if event.event == "model"]
    if asked and asked[-1].error is not None:
        return replace(_of_model(asked[-1], ask.error), scoring=scoring)
    words = said(ask.error) if ask.error is not None else sample.error.message
    if scoring:
        failure = _failure(ask.error) if ask.error is not None else None
        if failure is not None and failure.blame == "infrastructure":
            return replace(failure, scoring=True)
        message = f"a scorer failed: {words}"[:LONGEST]
        return Failure("harness", "infrastructure", message, _tail(sample), scoring=True)
    if ask.error is None:
        message = f"the sample did not begin: {words}"[:LONGEST]
        return Failure("harness", "infrastructure", message, _tail(sample))
    return _failure(ask.error)


def _of_model(event: Any, error: BaseException | None) -> Failure:  # noqa: ANN401 # a ModelEvent
    while error is not None and hasattr(error, "last_attempt"):
        # tried in vain as often as it may be: what came of the last time counts
        error = cast("Any", error).last_attempt.exception()
    status = getattr(error, "status_code", None)
    if isinstance(status, int):
        trouble = of_status(event.model, status, {}, str(error).encode(), "the key of the model")
    elif error is not None and failure_of(_tame(error)).blame == "candidate" and not _cut(error):
        # what it raised is neither an answer nor an outage: a provider that is set up wrongly, say
        told = f"`{event.model}` could not be asked: {type(error).__name__}: {said(error)}"
        return Failure("harness", "infrastructure", told[:LONGEST])
    else:
        trouble = of_error(event.model, error or ConnectionError(event.error))
    return trouble.final((event.retries or 0) + 1)


def _cut(error: BaseException) -> bool:
    """Whether a client of a model says by it that the connection did not hold."""
    names = [kind.__name__ for kind in type(error).mro()]
    return any("Connect" in name or "Timeout" in name for name in names)


def _failure(error: BaseException) -> Failure:
    return failure_of(_tame(error))


def _tame(error: BaseException) -> Exception:
    return error if isinstance(error, Exception) else RuntimeError(f"SystemExit: {error}")


def _tail(sample: Any) -> str:  # noqa: ANN401 # an EvalSample
    return sample.error.traceback[-4 * LONGEST :]
