"""A language model as runner: prompt and settings are artifacts, and it is asked about cases.

A prompt that says `{{field}}` is the message, with the field of the case in that place; one that
does not is the system message, and the case follows it. Only the fields that a task names can be
had, for the others hold the answer. Comments of Markdown are for people and proposers: the model
does not see them. With `template: nunjucks` a prompt is what promptfoo takes it for.

With the same case and repeat every candidate is given the same seed, and every pair another one.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

from kept.core.artifact import Candidate
from kept.core.case import Case
from kept.core.model import Message, ModelReply, ModelRequest
from kept.core.ports import Model, Scope
from kept.core.rollout import Failure, Job, Rollout, TraceItem
from kept.core.values import NoSpan
from kept.evaluators.runners.chat import NoChat, chat_of
from kept.models.ask import ask_within, draw_seed
from kept.models.pricing import usual_usd, worst_usd
from kept.spec.locate.locate import read_value

_FIELD = re.compile(r"\{\{\s*([\w-]+)\s*\}\}")
_BRACES = re.compile(r"\{\{[^{}]*\}\}")
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)

NUMBERS = ("temperature", "top_p", "max_tokens")
"""What a file of settings may say."""


@dataclass(frozen=True, slots=True)
class Form:
    """What a model is asked with."""

    prompt: tuple[str, ...]
    """Artifacts, which are put together in this order."""
    input: tuple[str, ...]
    """Fields of a case that the model may see."""
    schema: Mapping[str, object] = field(default_factory=dict[str, object])
    settings: str | None = None
    """An artifact with numbers."""
    template: Literal["fields", "nunjucks"] = "fields"
    measured: bool = False
    """Whether somebody wants to know what an answer took and cost."""


class ModelRunner:
    """Asks a model once for every pair."""

    def __init__(self, model: Model, form: Form, timeout: float) -> None:
        self._model = model
        self._form = form
        self._timeout = timeout

    async def run(
        self, job: Job, candidate: Candidate, case: Case, scope: Scope
    ) -> Rollout | Failure:
        """Ask once."""
        request = request_for(self._form, candidate, case)
        if isinstance(request, Failure):
            return request
        request = replace(request, seed=seed_of(job))
        reply = await ask_within(self._timeout, scope, self._model, request)
        if isinstance(reply, Failure):
            return reply
        said = (*request.messages, Message("assistant", reply.text))
        trace = tuple(TraceItem(message.role, message.text) for message in said)
        metrics = _measures(reply) if self._form.measured else {}
        return _fault(reply) or Rollout(output=reply.text, metrics=metrics, trace=trace)

    async def close(self) -> None:
        """Nothing was opened here."""

    def worst_usd(self, candidate: Candidate, case: Case) -> float | None:
        """The most that one call can cost; None where nobody can tell."""
        request = request_for(self._form, candidate, case)
        return None if isinstance(request, Failure) else worst_usd(self._model, request)

    def usual_usd(self, candidate: Candidate, case: Case) -> float | None:
        """What one call costs with a reply of middling length; None where nobody can tell."""
        request = request_for(self._form, candidate, case)
        return None if isinstance(request, Failure) else usual_usd(self._model, request)


def seed_of(job: Job) -> int:
    """A seed for a pair: not one for all cases, which would have them all share one chance."""
    return draw_seed(job.purpose, job.case_id, job.repeat)


def request_for(form: Form, candidate: Candidate, case: Case) -> ModelRequest | Failure:
    """What a candidate asks about a case, or what is wrong with the candidate."""
    messages = _templated(form, candidate, case)
    if messages is None:
        messages = _worded(form, candidate, case)
    if isinstance(messages, Failure):
        return messages
    numbers = _numbers(form.settings, candidate)
    if isinstance(numbers, Failure):
        return numbers
    return replace(ModelRequest(messages, schema=form.schema), **numbers)


def unfilled(text: str, given: Collection[str]) -> Iterator[str]:
    """What of a prompt looks like the place of a field, and is none that the model is given."""
    for place in _BRACES.findall(_uncommented(text)):
        field = _FIELD.fullmatch(place)
        if field is None or field[1] not in given:
            yield place


def _uncommented(text: str) -> str:
    # behind the last end of a comment, each beginning would be searched for its end in vain
    end = text.rfind("-->") + 3 if "-->" in text else 0
    return _COMMENT.sub("", text[:end]) + text[end:]


def _templated(
    form: Form, candidate: Candidate, case: Case
) -> tuple[Message, ...] | Failure | None:
    if form.template == "fields":
        return None
    (name,) = form.prompt
    try:
        return chat_of(name, candidate.texts[name], _given(form, case))
    except NoChat as error:
        return Failure("crash", "candidate", str(error))


def _worded(form: Form, candidate: Candidate, case: Case) -> tuple[Message, ...] | Failure:
    parts = (_uncommented(candidate.texts[name]).strip() for name in form.prompt)
    prompt = "\n\n".join(part for part in parts if part)
    given = _given(form, case)
    unknown = [name for name in _FIELD.findall(prompt) if name not in given]
    if unknown:
        message = f"the prompt asks for `{{{{{unknown[0]}}}}}`, which the model is not given"
        return Failure("crash", "candidate", message)
    if _FIELD.search(prompt):
        filled = _FIELD.sub(lambda found: _shown(given[found[1]]), prompt)
        return (Message("user", filled),)
    only = next(iter(given.values())) if len(given) == 1 else given
    system = (Message("system", prompt),) if prompt else ()
    return (*system, Message("user", _shown(only)))


def fields_of(case: Case) -> Mapping[str, object]:
    """The fields of a case; none where it is no mapping."""
    data = case.data
    return cast("dict[str, object]", data) if isinstance(data, dict) else {}


def _given(form: Form, case: Case) -> Mapping[str, object]:
    data = fields_of(case)
    return {name: data[name] for name in form.input}


def _shown(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _numbers(settings: str | None, candidate: Candidate) -> dict[str, Any] | Failure:
    """The numbers that a file of settings has; none of them need be there."""
    found: dict[str, Any] = {}
    if settings is None:
        return found
    why = ""
    for name in NUMBERS:
        value = read_value(settings, candidate.texts[settings], name)
        if isinstance(value, NoSpan):
            why = why or value.detail
            continue
        if isinstance(value, bool | str) or value < 0:
            message = f"`{name}` of {settings} is `{value}`, where a number was expected"
            return Failure("crash", "candidate", message)
        found[name] = int(value) if name == "max_tokens" else float(value)
    # a file that cannot be read has none of them, and must not pass for one that sets nothing
    return found or Failure("crash", "candidate", f"no setting can be read: {why}")


def _measures(reply: ModelReply) -> dict[str, float]:
    return {"latency_ms": reply.seconds * 1000, "cost_usd": reply.usage.usd}


def _fault(reply: ModelReply) -> Failure | None:
    """Why a reply is none that could be scored."""
    if reply.finish == "refused":
        return Failure("refused", "candidate", "the model would not answer", reply.text)
    if not reply.text.strip():
        return Failure("empty", "candidate", "the model answered nothing")
    return None
