"""Inspect samples as rollouts: scores, traces, and attribution of failures.

Scores are numbers that a scorer gave; a missing one is never made up. Inspect's own scorers score
each run of a sample. A sample without a score is attributed as follows:

| what happened | kind | blame |
|---|---|---|
| a call to a model failed after Inspect's retries | that of `kept.models.protocol` | the same |
| a solver raised, or no task can be made of these texts | crash | candidate |
| a solver lost a connection, or got 429 or 5xx | network, server | infrastructure |
| the sample did not begin: its sandbox, say | harness | infrastructure |
| a scorer raised | harness | infrastructure, unless it can score the incumbent |
"""

import asyncio
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import isnan
from typing import Any, cast

from kept.adapters.inspect.evaluation import Ask, Made, Running, said
from kept.adapters.inspect.tasks import Changed, Maker, Samples, made
from kept.adapters.reflection import findings_in, trace_of
from kept.core.artifact import Candidate
from kept.core.case import Case
from kept.core.ports import Scope
from kept.core.rollout import Failure, Job, Rollout, Usage
from kept.core.score import Score
from kept.errors import SetupError
from kept.evaluators.runners.function import LONGEST, failure_of, number_of
from kept.models.prices import rates_of
from kept.models.protocol import Taken, hidden, of_error, of_status
from kept.models.providers import config_of

METRIC = "score"

GRADES = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
"""Correct, partly, incorrect, no answer: as Inspect counts them."""

WORDS = {"yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}


def number_in(value: object) -> float | None:
    """Score value as a number; None where Inspect itself would only guess."""
    if isinstance(value, str):
        known = GRADES.get(value, WORDS.get(value.lower()))
        if known is not None:
            return known
        try:
            value = float(value)
        except ValueError:
            return None
    number = number_of(value)
    return None if number is None or isnan(number) else number


def metrics_of(scores: Mapping[str, Any], which: str | None) -> dict[str, float] | Failure:
    """All numeric values by scorer name, and under `score` the one that decides."""
    found: dict[str, float] = {}
    for name, score in scores.items():
        values: object = score.value
        rows = [(name, values)]
        if isinstance(values, Mapping):
            parts = cast("Mapping[str, object]", values)
            rows = [(f"{name}.{key}", value) for key, value in parts.items()]
        for key, value in rows:
            number = number_in(value)
            if number is not None:
                found[key] = number
    if not scores:
        return _nothing("the scorers gave no score")
    # the first scorer decides unless another one is named
    first, score = next(iter(scores.items()))
    chosen = which or first
    if chosen in found:
        return {**found, METRIC: found[chosen]}
    head = chosen.partition(".")[0]
    score = scores.get(chosen, scores.get(head, score))
    several = [key for key in found if key.startswith(f"{head}.")]
    if several:
        words = f'`{head}` gives several values: name one, as in scorer="{several[0]}"'
        return _nothing(f"{words}; there are {', '.join(several)}")
    return _nothing(f"`{chosen}` gave {score.value!r:.100}, which is no score")


def feedback_of(scores: Mapping[str, Any], answer: str) -> str:
    """Verdicts and explanations of the scorers, one line each."""
    lines: list[str] = []
    for name, score in scores.items():
        told = score.value if isinstance(score.value, str) else f"{score.value}"
        why = (score.explanation or "").strip()
        # many scorers only repeat the answer as their explanation
        lines.append(f"{name}: {told}" + (f" ({why})" if why and why != answer.strip() else ""))
    return "\n".join(lines)


def _nothing(words: str) -> Failure:
    return Failure("harness", "infrastructure", words[:LONGEST], scoring=True)


def unmade(error: BaseException, ask: Ask) -> Failure:
    """Failure for a sample that never reached Inspect."""
    if isinstance(error, Changed | SetupError):
        return Failure("crash", "candidate", error.message)
    if error is ask.error:
        return _failure(error)
    return Failure("harness", "infrastructure", said(error)[:LONGEST])


def trouble_of(sample: Any, ask: Ask) -> Failure:  # noqa: ANN401 # an EvalSample
    """Failure for a sample that ended in an error."""
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
        # retries are exhausted: the exception of the last attempt counts
        error = cast("Any", error).last_attempt.exception()
    status = getattr(error, "status_code", None)
    if isinstance(status, int):
        trouble = of_status(event.model, status, {}, str(error).encode(), "the key of the model")
    elif (
        error is not None
        and failure_of(_tame(error)).blame == "candidate"
        # class names by which model clients signal a lost connection
        and not any("Connect" in k.__name__ or "Timeout" in k.__name__ for k in type(error).mro())
    ):
        # neither an answer nor an outage, for example a misconfigured provider
        told = f"`{event.model}` could not be asked: {type(error).__name__}: {said(error)}"
        return Failure("harness", "infrastructure", told[:LONGEST])
    else:
        trouble = of_error(event.model, error or ConnectionError(event.error))
    return trouble.final((event.retries or 0) + 1)


def _failure(error: BaseException) -> Failure:
    return failure_of(_tame(error))


def _tame(error: BaseException) -> Exception:
    return error if isinstance(error, Exception) else RuntimeError(f"SystemExit: {error}")


def _tail(sample: Any) -> str:  # noqa: ANN401 # an EvalSample
    return sample.error.traceback[-4 * LONGEST :]


MAX_MESSAGE_CHARS = 2000
"""Maximum characters of one message in a record."""

MESSAGES = 40
"""Maximum messages in a record; the last ones are kept."""

ATTACHED = "attachment://"


@dataclass(frozen=True, slots=True)
class Reader:
    """Converts Inspect samples into rollouts."""

    components: tuple[str, ...]
    scorer: str | None = None
    """Scorer that decides; None for the first."""
    targets: bool = False
    """True if proposers may see the correct answers."""
    secrets: tuple[str, ...] = ()

    def read(self, told: Any, ask: Ask, *, seen: bool) -> Rollout | Failure:  # noqa: ANN401 # theirs
        """Rollout of a sample; with a trace if `seen`."""
        if isinstance(told, BaseException):
            return self._safe(unmade(told, ask))
        used = usage_of(told)
        scores: dict[str, Any] = told.scores or {}
        if told.error is not None:
            failure = trouble_of(told, ask)
            # with `score_on_error`, scores count despite an error of the candidate
            if failure.blame == "infrastructure" or not scores:
                return self._safe(replace(failure, usage=used))
        elif told.limit is not None and not scores:
            message = f"the sample came to its limit ({told.limit.type}) and was not scored"
            return Failure("limit", "candidate", message, usage=used)
        metrics = metrics_of(scores, self.scorer)
        if isinstance(metrics, Failure):
            return replace(metrics, usage=used)
        record = {k: hidden(v, self.secrets) for k, v in self._record(told, scores)} if seen else {}
        trace = tuple(trace_of({name: [record] for name in self.components})) if seen else ()
        return Rollout(metrics=metrics, trace=trace, usage=used)

    def _safe(self, failure: Failure) -> Failure:
        message, detail = (hidden(t, self.secrets) for t in (failure.message, failure.detail))
        return replace(failure, message=message, detail=detail)

    def _record(self, sample: Any, scores: Any) -> Iterator[tuple[str, str]]:  # noqa: ANN401 # theirs
        given, answer = sample.input, _resolved(sample, sample.output.completion)
        plain = isinstance(given, str)
        yield "Inputs", _resolved(sample, given) if plain else _talk(sample, given)
        if sample.choices:
            yield "Choices", "\n".join(sample.choices)
        if len(sample.messages) > 3 or not plain:
            yield "Messages", _talk(sample, sample.messages[-MESSAGES:])
        yield "Generated Outputs", answer
        if self.targets:
            target = sample.target
            yield "Target", target if isinstance(target, str) else ", ".join(target)
        if sample.limit is not None:
            yield "Limit", f"it was stopped at its {sample.limit.type} limit"
        if sample.error is not None:
            yield "Error", sample.error.message[:MAX_MESSAGE_CHARS]
        yield "Feedback", feedback_of(scores, answer)


def usage_of(sample: Any) -> Usage:  # noqa: ANN401 # an EvalSample
    """Tokens as Inspect counted them; cost from Inspect, or else from list prices."""
    # replies read from Inspect's cache are no new calls
    asked = [e for e in sample.events if e.event == "model" and e.cache != "read"]
    found = Usage(calls=len(asked))
    for name, used in sample.model_usage.items():
        cached, written = used.input_tokens_cache_read or 0, used.input_tokens_cache_write or 0
        taken = Taken(used.input_tokens + cached + written, used.output_tokens, cached, written)
        try:
            rates = rates_of(config_of(name))
        except SetupError:
            rates = None  # a provider that only Inspect knows
        usd = used.total_cost or (rates.usd(taken) if rates else 0.0)
        found += Usage(0, taken.tokens_in, taken.tokens_out, cached, usd)
    return found


def _talk(sample: Any, messages: Sequence[Any]) -> str:  # noqa: ANN401 # theirs
    """Messages as plain text, with the tool calls in them."""
    lines: list[str] = []
    for message in messages:
        lines.append(f"[{message.role}] {_resolved(sample, message.text)[:MAX_MESSAGE_CHARS]}")
        calls = getattr(message, "tool_calls", None) or ()
        lines += [
            f"  calls {call.function}({call.arguments})"[:MAX_MESSAGE_CHARS] for call in calls
        ]
    return "\n".join(lines)


def _resolved(sample: Any, text: str) -> str:  # noqa: ANN401 # an EvalSample
    """Text of a message; Inspect moves long ones into attachments."""
    return sample.attachments.get(text.removeprefix(ATTACHED), text)


class TaskRunner:
    """Implements `Runner` and `Scorer`."""

    def __init__(
        self,
        running: Running,
        maker: Maker,
        samples: Samples,
        reader: Reader,
        *,
        seed: int = 0,
        source: str = "",
    ) -> None:
        self._running = running
        self._maker = maker
        self._samples = samples
        self._reader = reader
        self._seed = seed
        self.source = source
        """Fingerprint of the task, so that resume detects changes."""

    async def run(
        self, job: Job, candidate: Candidate, case: Case, scope: Scope
    ) -> Rollout | Failure:
        """Run the sample in Inspect, concurrently with all others."""
        make = partial(self._make, candidate)
        ask = Ask(case.id, self._draw(job), _nobody)
        told = await self._running.run(candidate.id, make, ask)
        return self._reader.read(told, ask, seen=job.purpose in ("feedback", "probe"))

    async def score(
        self, job: Job, rollout: Rollout, candidate: Candidate, case: Case, scope: Scope
    ) -> Score | Failure:
        """Scores that Inspect's scorers gave during the run."""
        return Score(rollout.metrics, findings_in(rollout.trace))

    async def close(self) -> None:
        """End the eval, and wait until it has ended."""
        await asyncio.get_running_loop().run_in_executor(None, self._running.close)

    def _make(self, candidate: Candidate) -> Made:
        return made(self._maker, self._samples, candidate.texts)

    def _draw(self, job: Job) -> int:
        """Epoch of a rollout: a repeat can be answered from Inspect's cache, two repeats differ."""
        name = f"{self._seed} {job.purpose} {job.repeat}"
        return 1 + int.from_bytes(hashlib.sha256(name.encode()).digest()[:3], "big")


def _nobody(told: Any) -> None:  # noqa: ANN401 # whatever is told
    """Placeholder callback until the request is submitted."""
