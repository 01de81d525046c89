"""What Inspect tells of a sample that has ended, as a rollout."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kept.adapters.inspect.scoring import feedback_of, metrics_of
from kept.adapters.inspect.trouble import trouble_of, unmade
from kept.adapters.inspect.watching import Ask
from kept.adapters.records import trace_of
from kept.core.rollout import Failure, Rollout, Usage
from kept.errors import SetupError
from kept.models.prices import Rates, rates_of
from kept.models.providers import config_of
from kept.models.speech import Taken
from kept.models.trouble import hidden

LONGEST = 2000
"""Characters of one message in a record."""

MESSAGES = 40
"""Messages of a record, the last ones."""

ATTACHED = "attachment://"


@dataclass(frozen=True, slots=True)
class Reader:
    """Knows what of a sample is wanted."""

    components: tuple[str, ...]
    scorer: str | None = None
    """Which one decides; the first unless it is named."""
    targets: bool = False
    """Whether proposers are shown the right answers."""
    secrets: tuple[str, ...] = ()

    def read(self, told: Any, ask: Ask, *, seen: bool) -> Rollout | Failure:  # noqa: ANN401 # theirs
        """A rollout, with a record of it where somebody will look at it."""
        if isinstance(told, BaseException):
            return self._safe(unmade(told, ask))
        used = usage_of(told)
        scores: dict[str, Any] = told.scores or {}
        if told.error is not None:
            failure = trouble_of(told, ask)
            # `score_on_error` asks for what the scorers say nevertheless
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
            yield "Error", sample.error.message[:LONGEST]
        yield "Feedback", feedback_of(scores, answer)


def usage_of(sample: Any) -> Usage:  # noqa: ANN401 # an EvalSample
    """Tokens as Inspect counted them, and dollars: as it says, or as they are listed."""
    asked = [e for e in sample.events if e.event == "model" and e.cache != "read"]
    found = Usage(calls=len(asked))
    for name, used in sample.model_usage.items():
        cached, written = used.input_tokens_cache_read or 0, used.input_tokens_cache_write or 0
        taken = Taken(used.input_tokens + cached + written, used.output_tokens, cached, written)
        rates = _rates(name)
        usd = used.total_cost or (rates.usd(taken) if rates else 0.0)
        found += Usage(0, taken.tokens_in, taken.tokens_out, cached, usd)
    return found


def _rates(name: str) -> Rates | None:
    try:
        return rates_of(config_of(name))
    except SetupError:
        return None  # a provider that only Inspect knows


def _talk(sample: Any, messages: Sequence[Any]) -> str:  # noqa: ANN401 # theirs
    """Messages in words, with the tools that were called."""
    lines: list[str] = []
    for message in messages:
        lines.append(f"[{message.role}] {_resolved(sample, message.text)[:LONGEST]}")
        calls = getattr(message, "tool_calls", None) or ()
        lines += [f"  calls {call.function}({call.arguments})"[:LONGEST] for call in calls]
    return "\n".join(lines)


def _resolved(sample: Any, text: str) -> str:  # noqa: ANN401 # an EvalSample
    """A text that Inspect may have put away."""
    return sample.attachments.get(text.removeprefix(ATTACHED), text)
