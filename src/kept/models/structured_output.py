"""Replies that must satisfy a JSON schema, whoever wrote them.

A provider that can be held to a schema is; what it says is looked at all the same. Else what a
model thought aloud is left out, JSON that is almost right is mended, and what does not satisfy the
schema is asked for once more, with what is wrong with it.
"""

import json
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from kept.core.llm import Message, ModelReply, ModelRequest
from kept.core.parsing import MAX_DEPTH, ParseLimit, check_depth, parse_json
from kept.core.rollout import Failure, Usage
from kept.sandbox.json_schema import first_error
from kept.sandbox.worker import ChildEnded
from kept.sandbox.worker_pool import BoundedCalls, CallRaised

Call = Callable[[ModelRequest], Awaitable[ModelReply | Failure]]

Check = Callable[[Any], str]
"""What is wrong with a value that satisfies its schema; empty where nothing is."""

ROUNDS = 2
"""How often a reply is asked for in all."""

LONGEST = 1_000
"""Characters of what is wrong that a model is told."""

MOST_CLOSE = 1_000
"""Characters of almost-JSON that `json_repair` mends in a second at worst; it takes more than the
square of their number."""

MEND_SECONDS = 5.0
"""For mending a longer reply, in a process that can be ended."""

_MENDING = BoundedCalls("kept.models.structured_output:mended")

_THOUGHT = re.compile(r"<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL | re.IGNORECASE)
_OPENED = re.compile(r"^.*?</think(?:ing)?>", re.DOTALL | re.IGNORECASE)
"""A thought whose beginning the chat template swallowed."""
_CLOSING = re.compile(r"</think(?:ing)?>", re.IGNORECASE)
_FENCED = re.compile(r"```(?:json)?[^\S\n]*\n(.*?)```", re.DOTALL)
_OPENING = re.compile(r"""\{\s*(?:["'}]|\w+\s*:|$)|\[\s*(?:[\[{"'\d\]-]|true\b|false\b|null\b|$)""")
"""A bracket that begins JSON, and not a remark in a sentence."""
_PAIRS = {"}": "{", "]": "["}


class Unfit(ValueError):
    """A text that is no JSON of the wanted kind; says why."""


@dataclass(frozen=True, slots=True)
class ReplyRules:
    """What a reply is held to besides the schema of its request."""

    rounds: int = ROUNDS
    """Times that it is asked for at most, each time with what was wrong the last time."""
    check: Check | None = None
    """For what no schema can say."""
    schema: Mapping[str, object] | None = None
    """Satisfied in place of the request's, where the code can do with less."""
    ignore_extra_keys: bool = False
    """Whether keys that the schema does not allow are left out; else they are a fault."""
    usable: Callable[[str], bool] | None = None
    """False for a text that the caller cannot use: it is not asked again, and not cached."""

    def is_met(self, reply: ModelReply, request: ModelRequest) -> bool:
        """True for a reply that another run may be given in place of a new one."""
        if reply.finish == "refused":
            return False
        if reply.tool_calls:
            return True
        try:
            text, wrong = self.read(reply, request)
        except Unfit:
            return False
        return not wrong and (self.usable is None or self.usable(text))

    def read(self, reply: ModelReply, request: ModelRequest) -> tuple[str, str]:
        """The text of a reply as its schema wants it, and what is wrong with it; raises `Unfit`."""
        if not request.schema:
            return reply.text, ""
        schema = self.schema or request.schema
        # a reply that was cut off is not repaired: how it would have gone on is not known
        cut = reply.finish == "length"
        text = fit(reply.text, schema, mend=not cut, ignore_extra_keys=self.ignore_extra_keys)
        return text, self.check(json.loads(text)) if self.check is not None else ""


ANY = ReplyRules()


async def settle(
    request: ModelRequest, call: Call, rules: ReplyRules = ANY
) -> ModelReply | Failure:
    """A reply whose text is JSON that satisfies its schema and rules, or why there is none."""
    reply = await call(request)
    if not request.schema or isinstance(reply, Failure) or reply.tool_calls:
        return reply
    usage, asked, wrong, rounds = reply.usage, request, "", rules.rounds
    for left in reversed(range(rounds)):
        if reply.finish == "refused":
            return Failure("refused", "candidate", "the model would not answer", reply.text, usage)
        try:
            text, wrong = rules.read(reply, request)
        except Unfit as error:
            text, wrong = "", str(error)
        if not wrong:
            return replace(reply, text=text, usage=usage)
        if reply.finish == "length":
            return _unfit(reply, f"cut off at max_tokens: {wrong}", usage)
        if not left:
            break
        words = f"That does not satisfy the schema, {wrong}\nAnswer again, with the JSON only."
        said = (Message("assistant", reply.text or "(nothing)"), Message("user", words))
        asked = replace(asked, messages=(*asked.messages, *said))
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


def fit(text: str, schema: Any, *, mend: bool = True, ignore_extra_keys: bool = False) -> str:  # noqa: ANN401 # any JSON schema
    """The JSON in a text, as JSON; raises `Unfit` where none satisfies the schema.

    With `mend`, JSON that is almost right is repaired. What ends before its JSON does is not: parts
    of it are missing, and closing its brackets would hide that.
    """
    wrong = limit = ""
    try:
        for value in _readings(without_thoughts(text), mend):
            found = without_extras(value, schema) if ignore_extra_keys else value
            problem = problem_with(found, schema)
            if problem is None:
                return _written(found)
            wrong = wrong or problem
    except ParseLimit as error:
        limit = str(error)
    raise Unfit(wrong or limit or "there is no JSON in it")


def _written(value: Any) -> str:  # noqa: ANN401 # any JSON
    """A value as JSON that a journal and a file can hold; raises `Unfit` where it has no such."""
    try:
        written = json.dumps(value, ensure_ascii=False, allow_nan=False)
        written.encode()
    except ValueError as error:
        # NaN, or half a character
        raise Unfit(f"it cannot be written as JSON: {error}"[:LONGEST]) from error
    return written


def without_extras(value: Any, schema: Any) -> Any:  # noqa: ANN401 # any JSON, any JSON schema
    """A value without the keys that a schema does not allow beside its own."""
    if not isinstance(schema, Mapping):
        return value
    known = cast("Mapping[str, Any]", schema)
    if isinstance(value, list):
        return [without_extras(one, known.get("items")) for one in cast("list[Any]", value)]
    own = known.get("properties")
    if not isinstance(value, dict) or not isinstance(own, Mapping):
        return cast("Any", value)
    properties = cast("Mapping[str, Any]", own)
    closed = known.get("additionalProperties") is False
    return {
        key: without_extras(one, properties.get(key))
        for key, one in cast("dict[str, Any]", value).items()
        if key in properties or not closed
    }


def is_cut(text: str) -> bool:
    """True where JSON begins in a text and does not end in it."""
    start = _OPENING.search(text)
    while start is not None:
        end = _end_of_json(text, start.start())
        if end is None:
            return True
        start = _OPENING.search(text, end)
    return False


def _end_of_json(text: str, start: int) -> int | None:
    """Where JSON ends that begins at an index, its faults forgiven; None where it does not end."""
    opened: list[str] = []
    quote, at, last = "", start, ""
    while at < len(text):
        char = text[at]
        at += 1
        if quote:
            if char == "\\":
                at += 1
            elif char == quote and _closes(text, at):
                quote = ""
        elif char == '"' or (char == "'" and last in "{[,:"):
            quote = char
        elif char in "{[":
            opened.append(char)
            if len(opened) > MAX_DEPTH:
                return len(text)  # too deep to be read, whether it ends or not
        elif char in "}]" and _PAIRS[char] in opened:
            # a bracket that was left out in between is a fault that can be repaired
            while opened.pop() != _PAIRS[char]:
                pass
            if not opened:
                return at
        if not char.isspace():
            last = char
    return None


def _closes(text: str, at: int) -> bool:
    """True for a quote that ends its string, as what JSON goes on with follows it.

    A quote inside, which should have been escaped, is followed by something else.
    """
    while at < len(text) and text[at].isspace():
        at += 1
    return at == len(text) or text[at] in ",:}]"


def problem_with(value: Any, schema: Any) -> str | None:  # noqa: ANN401 # any JSON, any JSON schema
    """Why a value does not satisfy a schema, None if it does; `ValueError` for no schema."""
    try:
        error = first_error(value, schema)
    except ParseLimit as limit:
        return str(limit)
    if error is None:
        return None
    return f"at `{error.where or 'the top'}`: {error.message}"[:LONGEST]


def without_thoughts(text: str) -> str:
    """A text without what a model thought aloud."""
    # behind the last closing tag, each opening one would be searched for its end in vain
    end = max((found.end() for found in _CLOSING.finditer(text)), default=0)
    return (_OPENED.sub("", _THOUGHT.sub("", text[:end])) + text[end:]).strip()


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
    """Possible values of a text as JSON, the most literal first; raises `Unfit` for a cut one."""
    fenced = _FENCED.findall(text, 0, text.rfind("```") + 3)
    whole, parts = [text, *fenced], list[str]()
    # from the first bracket to the last of its kind
    for opening, closing in ("{}", "[]"):
        start, end = text.find(opening), text.rfind(closing)
        if 0 <= start < end:
            parts.append(text[start : end + 1])
    tried = [*whole, *parts]
    limit: ParseLimit | None = None
    for n, one in enumerate(tried):
        if n == len(whole) and is_cut(text):
            raise Unfit("it is cut off: its JSON does not end")
        try:
            yield parse_json(one)
        except ParseLimit as error:
            limit = limit or error
        except ValueError:
            continue
    if not parts and is_cut(text):
        raise Unfit("it is cut off: its JSON does not end")
    if mend:
        yield from _mended(tried)
    if limit is not None:
        raise limit


def _mended(texts: list[str]) -> list[Any]:
    if sum(map(len, texts)) <= MOST_CLOSE:
        return mended(texts)
    try:
        return _MENDING.call({"texts": texts}, MEND_SECONDS)
    except TimeoutError as error:
        raise ParseLimit(f"mending its JSON takes more than {MEND_SECONDS:g} seconds") from error
    except (MemoryError, CallRaised, ChildEnded, OSError) as error:
        raise ParseLimit(f"its JSON cannot be mended: {error}") from error


def mended(texts: list[str]) -> list[Any]:
    """What texts that are almost JSON may mean, the last first; `_mended` bounds its time."""
    from json_repair import loads

    found: list[Any] = []
    for one in reversed(texts):
        try:
            value: Any = loads(one)
            check_depth(value)
        except (ValueError, RecursionError):
            continue
        # prose is mended into an empty text
        if value != "":
            found.append(value)
    return found


def _unfit(reply: ModelReply, why: str, usage: Usage) -> Failure:
    message = f"the reply does not satisfy its schema, {why}"
    return Failure("parse", "candidate", message, reply.text, usage)
