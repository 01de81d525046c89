"""Model and agent runners: prompts, settings and promptfoo templates as artifacts.

A prompt with `{{field}}` is the user message, with fields of the case filled in. Any other is the
system message, and the case follows. Only fields that the task names are available, because
others hold the answer. Markdown comments are removed; they are for people and proposers.

With `template: nunjucks` a prompt is read as in promptfoo: a text, or a chat in JSON. A chat is a
list of messages with `role` and `content`. If it is JSON before filling, each text is filled
separately, so that no quote breaks it.

An agent answers the messages of a case one by one with its tools. Its instructions, numbers and
tool descriptions come from the candidate.

For the same case and repeat all candidates get the same seed; each pair has a different one.
"""

import asyncio
import json
import re
import shlex
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from pydantic import Field

from kept.core.artifact import Candidate, NoSpan
from kept.core.case import Case, fields_of
from kept.core.llm import Message, ModelReply, ModelRequest, Role, failed, said
from kept.core.parsing import ParseLimit, parse_json
from kept.core.ports import Model, Scope
from kept.core.rollout import Failure, Job, Rollout, TraceItem
from kept.core.text import count
from kept.evaluators.templates.render import MOST, TemplateFault, names_of, render
from kept.models.ask import ask_within, draw_seed
from kept.models.prices import usual_usd, worst_usd
from kept.models.roles import connect_role
from kept.models.tool_loop import Agent
from kept.sandbox.command import TIMEOUT
from kept.spec.checks import check_asked, check_field
from kept.spec.components import BuildContext, CheckContext, Component, ModelNeed, Needs
from kept.spec.locate.tree import read_value
from kept.spec.shared_sections import ModelsSpec, RoleSpec
from kept.spec.validate import OneOrMore, Seconds, SpecModel, Text, section

ROLES: Mapping[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
}


class NoChat(ValueError):
    """Prompt that cannot be sent; the message says why."""


def chat_of(name: str, text: str, given: Mapping[str, object]) -> tuple[Message, ...]:
    """Fill a promptfoo prompt and return its messages; raises `NoChat`.

    A missing value is an error of the prompt, not an empty text.
    """
    try:
        return _chat(name, text, given)
    except TemplateFault as fault:
        where = f" (line {fault.line})" if fault.line else ""
        raise NoChat(f"the prompt is no template: {fault}{where}") from fault
    except RecursionError as error:
        raise NoChat("the prompt is nested too deeply") from error


def _chat(name: str, text: str, given: Mapping[str, object]) -> tuple[Message, ...]:
    unknown = [one for one in names_of(text) if one not in given]
    if unknown:
        raise NoChat(f"the prompt asks for `{{{{{unknown[0]}}}}}`, which the model is not given")
    parsed = _json(text)
    if _is_chat(parsed):
        return _messages(_Filling(given).of(parsed))
    if name.endswith(".json"):
        raise NoChat(f"{name} is no list of messages in JSON")
    said = render(text, given).strip()
    made = _json(said)
    return _messages(made) if _is_chat(made) else (Message("user", said),)


def _json(text: str) -> object:
    if not text.lstrip().startswith("["):
        return None
    try:
        return parse_json(text)
    except ParseLimit as limit:
        raise NoChat(f"the prompt is JSON that cannot be read: {limit}") from limit
    except ValueError:
        return None


def is_chat(text: str) -> bool:
    """True if an unfilled text is a chat in JSON."""
    try:
        return _is_chat(_json(text))
    except NoChat:
        return False


def _is_chat(value: object) -> bool:
    rows = cast("list[object]", value) if isinstance(value, list) else []
    return bool(rows) and all(isinstance(row, dict) and "role" in row for row in rows)


class _Filling:
    """Filler of texts one by one, with one size limit for all."""

    def __init__(self, given: Mapping[str, object]) -> None:
        self._given = given
        self._size = 0

    def of(self, value: object) -> object:
        """Fill every text in a value."""
        if isinstance(value, str):
            text = render(value, self._given)
            self._size += len(text)
            if self._size > MOST:
                raise NoChat("the messages of the prompt are too much text together")
            return text
        if isinstance(value, list):
            return [self.of(item) for item in cast("list[object]", value)]
        if isinstance(value, dict):
            return {key: self.of(one) for key, one in cast("dict[str, object]", value).items()}
        return value


def _messages(value: object) -> tuple[Message, ...]:
    rows = cast("list[dict[str, object]]", value)
    messages: list[Message] = []
    for row in rows:
        role = str(row["role"])
        if role not in ROLES:
            raise NoChat(f"`{role}` is no role of a message; there are {', '.join(ROLES)}")
        messages.append(Message(ROLES[role], _content(row)))
    return tuple(messages)


def _content(row: Mapping[str, object]) -> str:
    content = row.get("content")
    if isinstance(content, str):
        return content
    parts = cast("list[object]", content) if isinstance(content, list) else [content]
    texts: list[str] = []
    for part in parts:
        said = cast("dict[str, object]", part).get("text") if isinstance(part, dict) else None
        if not isinstance(said, str):
            raise NoChat("a message holds what is no text; pictures and tools are not sent here")
        texts.append(said)
    return "\n".join(texts)


AgentOf = Callable[[Candidate], Awaitable[Agent | Failure]]
InputsOf = Callable[[Case], Awaitable[tuple[Message, ...] | Failure]]


class DialogueRunner:
    """Runner that holds one conversation for each candidate and case."""

    def __init__(
        self,
        agent_of: AgentOf,
        inputs_of: InputsOf,
        close: Callable[[], Awaitable[None]],
        timeout: float,
    ) -> None:
        self._agent_of = agent_of
        self._inputs_of = inputs_of
        self._close = close
        self._timeout = timeout

    async def run(
        self, job: Job, candidate: Candidate, case: Case, scope: Scope
    ) -> Rollout | Failure:
        """Send all messages of the case, until they are done or the agent fails."""
        agent = await self._agent_of(candidate)
        if isinstance(agent, Failure):
            return agent
        inputs = await self._inputs_of(case)
        if isinstance(inputs, Failure):
            return inputs
        seed = draw_seed(job.purpose, job.case_id, job.repeat)
        try:
            async with asyncio.timeout(self._timeout):
                return await _talk(agent, inputs, scope, seed)
        except TimeoutError:
            message = f"the agent was not done within {count(self._timeout, 'second')}"
            return Failure("timeout", "candidate", message)

    async def close(self) -> None:
        """Close what the tools have open."""
        await self._close()


async def _talk(
    agent: Agent, inputs: tuple[Message, ...], scope: Scope, seed: int
) -> Rollout | Failure:
    messages = agent.told
    trace = [said(message) for message in messages]
    answer = ""
    for n, message in enumerate(inputs):
        trace.append(said(message))
        reply = await agent.say((*messages, message), scope.branch(f"turn-{n}"), seed)
        if isinstance(reply, Failure):
            return reply
        messages, answer = reply.messages, reply.text
        trace += reply.trace
        if reply.failure is not None:
            trace.append(failed(reply.failure))
            break
    return Rollout(output=answer, trace=tuple(trace))


_FIELD = re.compile(r"\{\{\s*([\w-]+)\s*\}\}")
_BRACES = re.compile(r"\{\{[^{}]*\}\}")
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)

NUMBERS = ("temperature", "top_p", "max_tokens")
"""Keys that a settings file may have."""


@dataclass(frozen=True, slots=True)
class Form:
    """Artifacts and case fields that make a model request."""

    prompt: tuple[str, ...]
    """Artifacts, joined in this order."""
    input: tuple[str, ...]
    """Case fields that the model may see."""
    schema: Mapping[str, object] = field(default_factory=dict[str, object])
    settings: str | None = None
    """Artifact with numeric settings."""
    template: Literal["fields", "nunjucks"] = "fields"
    measured: bool = False
    """True to emit latency and cost as metrics."""


class ModelRunner:
    """Runner that asks a model once for each candidate and case."""

    def __init__(self, model: Model, form: Form, timeout: float) -> None:
        self._model = model
        self._form = form
        self._timeout = timeout

    async def run(
        self, job: Job, candidate: Candidate, case: Case, scope: Scope
    ) -> Rollout | Failure:
        """Ask the model once."""
        request = request_for(self._form, candidate, case)
        if isinstance(request, Failure):
            return request
        request = replace(request, seed=seed_of(job))
        reply = await ask_within(self._timeout, scope, self._model, request)
        if isinstance(reply, Failure):
            return reply
        said = (*request.messages, Message("assistant", reply.text))
        trace = tuple(TraceItem(message.role, message.text) for message in said)
        measures = {"latency_ms": reply.seconds * 1000, "cost_usd": reply.usage.usd}
        metrics = measures if self._form.measured else {}
        return _fault(reply) or Rollout(output=reply.text, metrics=metrics, trace=trace)

    async def close(self) -> None:
        """Do nothing: nothing was opened here."""

    def worst_usd(self, candidate: Candidate, case: Case) -> float | None:
        """Upper bound of the cost of one call in USD; None if unknown."""
        request = request_for(self._form, candidate, case)
        return None if isinstance(request, Failure) else worst_usd(self._model, request)

    def usual_usd(self, candidate: Candidate, case: Case) -> float | None:
        """Typical cost of one call in USD; None if unknown."""
        request = request_for(self._form, candidate, case)
        return None if isinstance(request, Failure) else usual_usd(self._model, request)


def seed_of(job: Job) -> int:
    """Seed of a case and repeat; one seed for all cases would correlate their replies."""
    return draw_seed(job.purpose, job.case_id, job.repeat)


def request_for(form: Form, candidate: Candidate, case: Case) -> ModelRequest | Failure:
    """Build the request of a candidate about a case, or the candidate's failure."""
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
    """Placeholders in a prompt that no given field fills."""
    for place in _BRACES.findall(_uncommented(text)):
        field = _FIELD.fullmatch(place)
        if field is None or field[1] not in given:
            yield place


def _uncommented(text: str) -> str:
    # only up to the last `-->`: an unclosed `<!--` makes the search quadratic
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


def _given(form: Form, case: Case) -> Mapping[str, object]:
    data = fields_of(case)
    return {name: data[name] for name in form.input}


def _shown(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _numbers(settings: str | None, candidate: Candidate) -> dict[str, Any] | Failure:
    """Read the numbers of a settings file; each is optional."""
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
    # an unreadable file yields no numbers and must not pass as one without settings
    return found or Failure("crash", "candidate", f"no setting can be read: {why}")


def _fault(reply: ModelReply) -> Failure | None:
    """Failure of a reply that cannot be scored; None if it can."""
    if reply.finish == "refused":
        return Failure("refused", "candidate", "the model would not answer", reply.text)
    if not reply.text.strip():
        return Failure("empty", "candidate", "the model answered nothing")
    return None


class ModelRunnerSpec(SpecModel):
    """Model that answers a prompt about a case."""

    type: Literal["model"] = "model"
    model: RoleSpec | None = None
    """`provider/name` or a block; by default the target of `models`."""
    prompt: OneOrMore
    """Artifacts of the prompt, joined in this order."""
    input: OneOrMore
    """Case fields that the model sees; others may hold the answer."""
    schema_: Annotated[Text | None, Field(alias="schema")] = None
    """File with the JSON schema of an answer."""
    settings: Text | None = None
    """Artifact with `temperature`, `top_p` and `max_tokens`, each optional."""
    template: Literal["fields", "nunjucks"] = "fields"
    """Template language: `{{field}}` only, or nunjucks as in promptfoo."""
    timeout_seconds: Seconds = TIMEOUT

    @classmethod
    def faults(cls, said: Mapping[str, Any]) -> Iterator[str]:
        """Check that nunjucks has a single prompt."""
        if said.get("template") == "nunjucks" and len(said.get("prompt", ())) > 1:
            yield "`template: nunjucks` takes one `prompt`, which is the whole request"


class ModelRunnerComponent(Component[ModelRunnerSpec, ModelRunner]):
    """Model that answers a prompt about a case."""

    Spec = ModelRunnerSpec

    def check(self, spec: ModelRunnerSpec, context: CheckContext) -> None:
        """Report a model that cannot be asked, and missing artifacts, fields and schemas."""
        source, texts = context.source, context.texts
        if spec.model is None and context.elsewhere("models", "target") is None:
            context.report("model", "missing", "or name a `target` among `models`")
        models = section(source, ("models",), ModelsSpec)
        if spec.model is not None:
            check_asked(source, context.at("model"), spec.model.config(source.folder))
        elif models is not None and models.target is not None:
            check_asked(source, ("models", "target"), models.target.config(source.folder))
        if spec.schema_ is not None:
            try:
                _read_schema(source.folder / spec.schema_)
            except OSError as error:
                context.report("schema", f"cannot read `{spec.schema_}`: {error.strerror}")
            except ValueError as error:
                context.report("schema", f"`{spec.schema_}` is no JSON schema: {error}")
        for key, names in (("prompt", spec.prompt), ("settings", (spec.settings,))):
            for name in names if texts else ():
                if name is not None and name not in texts:
                    known = f"there are {', '.join(sorted(texts)[:5])}"
                    context.report(key, f"there is no artifact `{name}`", known)
        check_input(context, spec.input)

    def build(self, spec: ModelRunnerSpec, context: BuildContext) -> ModelRunner:
        """Build the runner with its own model, or that of the role."""
        folder = context.folder
        schema: Mapping[str, object] = {}
        if spec.schema_ is not None:
            schema = _read_schema(folder / spec.schema_)
        usage = context.measures_usage
        form = Form(spec.prompt, spec.input, schema, spec.settings, spec.template, usage)
        target = spec.model or context.models.target
        assert target is not None, "a runner that asks no model is a problem of the spec"
        model = connect_role("target", target.config(folder))
        return ModelRunner(model, form, spec.timeout_seconds)

    def needs(self, spec: ModelRunnerSpec) -> Needs:
        """Return the model, its case fields and the time limit."""
        return Needs(
            models=(ModelNeed("target", spec.model),),
            commands=(shlex.quote(spec.schema_),) if spec.schema_ else (),
            case_fields=spec.input,
            worst_seconds=spec.timeout_seconds,
        )

    def warnings(self, spec: ModelRunnerSpec, context: BuildContext) -> Iterator[str]:
        """Warn about placeholders in a prompt that no field fills."""
        for name in spec.prompt if spec.template == "fields" else ():
            text = context.seed.texts.get(name, "")
            for place in dict.fromkeys(unfilled(text, spec.input)):
                yield (
                    f"`{place}` of {name} is filled in by nothing: "
                    f"the model is given {', '.join(spec.input)}"
                )


def check_input(context: CheckContext, fields: tuple[str, ...]) -> None:
    """Report input fields that cases do not have."""
    if context.cases is None:
        if fields and not context.has_cases:
            context.source.report(("cases",), "missing", "a model is asked about cases")
        return
    for name in fields:
        check_field(context.source, context.at("input"), name, context.cases)


def _read_schema(path: Path) -> Mapping[str, object]:
    schema = parse_json(path.read_text(encoding="utf-8"))
    if not isinstance(schema, dict):
        raise ValueError("it is not an object")
    return cast("dict[str, object]", schema)
