"""Replies that must satisfy a JSON schema, whoever wrote them.

A provider that can be held to a schema is; what it says is looked at all the same. Else what a
model thought aloud is left out, JSON that is almost right is mended, and what does not satisfy the
schema is asked for once more, with what is wrong with it.
"""

import json
import re
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any

from kept.core.model import Message, ModelReply, ModelRequest
from kept.core.rollout import Failure, Usage

Call = Callable[[ModelRequest], Awaitable[ModelReply | Failure]]

Check = Callable[[Any], str]
"""What is wrong with a value that satisfies its schema; empty where nothing is."""

ROUNDS = 2
"""How often a reply is asked for in all."""

LONGEST = 1_000
"""Characters of what is wrong that a model is told."""

_THOUGHT = re.compile(r"<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL | re.IGNORECASE)
_OPENED = re.compile(r"^.*?</think(?:ing)?>", re.DOTALL | re.IGNORECASE)
"""A thought whose beginning the chat template swallowed."""
_FENCED = re.compile(r"```(?:json)?\s*\n(.*?)```", re.DOTALL)


class Unfit(ValueError):
    """A text that is no JSON of the wanted kind; says why."""


async def settle(
    request: ModelRequest, call: Call, rounds: int = ROUNDS, check: Check | None = None
) -> ModelReply | Failure:
    """A reply whose text is JSON that satisfies the request's schema, or why there is none.

    It is asked for so many times at most, each time with what was wrong the last time; what no
    schema can say is looked at by `check`.
    """
    reply = await call(request)
    if not request.schema or isinstance(reply, Failure) or reply.tool_calls:
        return reply
    usage, asked, wrong = reply.usage, request, ""
    for left in reversed(range(rounds)):
        if reply.finish == "refused":
            return Failure("refused", "candidate", "the model would not answer", reply.text, usage)
        cut = reply.finish == "length"
        try:
            # what was cut off is not mended: nobody knows how it would have gone on
            text = fit(reply.text, request.schema, mend=not cut)
            wrong = check(json.loads(text)) if check is not None else ""
        except Unfit as error:
            text, wrong = "", str(error)
        if not wrong:
            return replace(reply, text=text, usage=usage)
        if cut:
            return _unfit(reply, f"cut off at max_tokens: {wrong}", usage)
        if not left:
            break
        asked = _once_more(asked, reply.text, wrong)
        again = await call(asked)
        if isinstance(again, Failure):
            return having_said(again, reply.text, f"the reply does not satisfy its schema, {wrong}")
        reply, usage = again, usage + again.usage
    times = "" if rounds == 1 else "asked twice: " if rounds == 2 else f"asked {rounds} times: "
    return _unfit(reply, f"{times}{wrong}", usage)


def having_said(failure: Failure, answer: str, wrong: str) -> Failure:
    """A failure to answer again, with the first answer: it was paid for, and may tell the cause."""
    first = f"its first answer could not be used: {wrong}\n{answer}"
    return replace(failure, detail="\n\n".join(filter(None, (failure.detail, first))))


def fit(text: str, schema: Any, *, mend: bool = True) -> str:  # noqa: ANN401 # any JSON schema
    """The JSON in a text, as JSON; raises `Unfit` where none satisfies the schema."""
    wrong = ""
    for value in _readings(without_thoughts(text), mend):
        problem = problem_with(value, schema)
        if problem is None:
            return json.dumps(value, ensure_ascii=False)
        wrong = wrong or problem
    raise Unfit(wrong or "there is no JSON in it")


def problem_with(value: Any, schema: Any) -> str | None:  # noqa: ANN401 # any JSON, any JSON schema
    """Why a value does not satisfy a schema, None if it does; `ValueError` for no schema."""
    validator = _validator(json.dumps(schema, sort_keys=True))
    error = next(iter(validator.iter_errors(value)), None)
    if error is None:
        return None
    where = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in error.instance_path)
    return f"at `{where.lstrip('.') or 'the top'}`: {error.message}"[:LONGEST]


def without_thoughts(text: str) -> str:
    """A text without what a model thought aloud."""
    return _OPENED.sub("", _THOUGHT.sub("", text)).strip()


def instructed(request: ModelRequest) -> ModelRequest:
    """The same request for a model that only has words to go by."""
    wanted = json.dumps(request.schema, ensure_ascii=False)
    words = f"Answer with JSON only. It must satisfy this JSON schema:\n{wanted}"
    *before, last = request.messages
    if last.role == "user":
        last = replace(last, text=f"{last.text}\n\n{words}")
        return replace(request, messages=(*before, last))
    return replace(request, messages=(*before, last, Message("user", words)))


def _readings(text: str, mend: bool) -> Iterator[Any]:
    """What a text may mean as JSON, the most literal first."""
    fenced = _FENCED.findall(text)
    tried = [text, *fenced, *_between(text)]
    for one in tried:
        try:
            yield json.loads(one)
        except ValueError:
            continue
    if not mend:
        return
    from json_repair import loads

    for one in reversed(tried):
        # prose is mended into an empty text
        if (value := loads(one)) != "":
            yield value


def _between(text: str) -> Iterator[str]:
    """From the first bracket to the last of its kind."""
    for opening, closing in ("{}", "[]"):
        start, end = text.find(opening), text.rfind(closing)
        if 0 <= start < end:
            yield text[start : end + 1]


def _once_more(request: ModelRequest, text: str, wrong: str) -> ModelRequest:
    words = f"That does not satisfy the schema, {wrong}\nAnswer again, with the JSON only."
    said = (Message("assistant", text or "(nothing)"), Message("user", words))
    return replace(request, messages=(*request.messages, *said))


def _unfit(reply: ModelReply, why: str, usage: Usage) -> Failure:
    message = f"the reply does not satisfy its schema, {why}"
    return Failure("parse", "candidate", message, reply.text, usage)


@lru_cache(maxsize=64)
def _validator(schema: str) -> Any:  # noqa: ANN401 # of jsonschema-rs
    from jsonschema_rs import validator_for

    return validator_for(json.loads(schema))
