"""Structured output: replies that must satisfy a JSON schema, from any model.

Providers that support schemas enforce them; their replies are checked all the same. For others,
reasoning is removed and almost valid JSON is repaired. A reply that still fails is requested once
more, with the error.
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
"""Check of a value that satisfies its schema: returns the problem, or an empty text."""

ROUNDS = 2
"""Requests for one reply in all, including the first."""

LONGEST = 1_000
"""Maximum characters of an error message sent to a model."""

MOST_CLOSE = 1_000
"""Characters of malformed JSON that `json_repair` repairs within a second.

Its time grows faster than the square of the length.
"""

MEND_SECONDS = 5.0
"""Seconds for repairing a longer reply, in a process that can be killed."""

_MENDING = BoundedCalls("kept.models.structured_output:mended")

_THOUGHT = re.compile(r"<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL | re.IGNORECASE)
_OPENED = re.compile(r"^.*?</think(?:ing)?>", re.DOTALL | re.IGNORECASE)
"""Reasoning whose opening tag the chat template removed."""
_CLOSING = re.compile(r"</think(?:ing)?>", re.IGNORECASE)
_FENCED = re.compile(r"```(?:json)?[^\S\n]*\n(.*?)```", re.DOTALL)
_OPENING = re.compile(r"""\{\s*(?:["'}]|\w+\s*:|$)|\[\s*(?:[\[{"'\d\]-]|true\b|false\b|null\b|$)""")
"""Bracket that begins JSON, not a remark in a sentence."""
_PAIRS = {"}": "{", "]": "["}


class Unfit(ValueError):
    """Text that holds no JSON of the wanted kind; the message says why."""


@dataclass(frozen=True, slots=True)
class ReplyRules:
    """Rules for a reply besides the schema of its request."""

    rounds: int = ROUNDS
    """Maximum requests for a reply; each further one includes the last error."""
    check: Check | None = None
    """Check of what a schema cannot express."""
    schema: Mapping[str, object] | None = None
    """Schema that replaces the request's, if the caller accepts less."""
    ignore_extra_keys: bool = False
    """True if keys that the schema does not allow are dropped; else they are an error."""
    usable: Callable[[str], bool] | None = None
    """False for a text that the caller cannot use: it is not requested again, and not cached."""

    def is_met(self, reply: ModelReply, request: ModelRequest) -> bool:
        """True if another run may use the reply from the cache."""
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
        """Return the text of a reply as JSON for its schema, and the problem; raise `Unfit`."""
        if not request.schema:
            return reply.text, ""
        schema = self.schema or request.schema
        # a truncated reply is not repaired: its missing part is unknown
        cut = reply.finish == "length"
        text = fit(reply.text, schema, mend=not cut, ignore_extra_keys=self.ignore_extra_keys)
        return text, self.check(json.loads(text)) if self.check is not None else ""


ANY = ReplyRules()


async def settle(
    request: ModelRequest, call: Call, rules: ReplyRules = ANY
) -> ModelReply | Failure:
    """Return a reply whose text is JSON that satisfies schema and rules, or a failure."""
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
        # show the model its own reply and the error, then ask again
        said = (Message("assistant", reply.text or "(nothing)"), Message("user", words))
        asked = replace(asked, messages=(*asked.messages, *said))
        again = await call(asked)
        if isinstance(again, Failure):
            return having_said(again, reply.text, f"the reply does not satisfy its schema, {wrong}")
        reply, usage = again, usage + again.usage
    times = "" if rounds == 1 else "asked twice: " if rounds == 2 else f"asked {rounds} times: "
    return _unfit(reply, f"{times}{wrong}", usage)


def having_said(failure: Failure, answer: str, wrong: str) -> Failure:
    """Add the first answer to a failure of the second: it was paid for, and may show the cause."""
    first = f"its first answer could not be used: {wrong}\n{answer}"
    return replace(failure, detail="\n\n".join(filter(None, (failure.detail, first))))


def fit(text: str, schema: Any, *, mend: bool = True, ignore_extra_keys: bool = False) -> str:  # noqa: ANN401 # any JSON schema
    """Extract the JSON of a text that satisfies a schema; raise `Unfit` if there is none.

    With `mend`, malformed JSON is repaired. Truncated JSON is not: parts of it are missing, and
    closing its brackets would hide that.
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
    """Serialize a value for journals and files; raise `Unfit` if that is impossible."""
    try:
        written = json.dumps(value, ensure_ascii=False, allow_nan=False)
        written.encode()
    except ValueError as error:
        # NaN or a lone surrogate
        raise Unfit(f"it cannot be written as JSON: {error}"[:LONGEST]) from error
    return written


def without_extras(value: Any, schema: Any) -> Any:  # noqa: ANN401 # any JSON, any JSON schema
    """Value without the keys that a closed schema does not list."""
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
    """True if JSON begins in a text and does not end in it."""
    start = _OPENING.search(text)
    while start is not None:
        end = _end_of_json(text, start.start())
        if end is None:
            return True
        start = _OPENING.search(text, end)
    return False


def _end_of_json(text: str, start: int) -> int | None:
    """Index after JSON that starts at `start`, tolerating errors; None if it does not end."""
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
                # the index after the text stands for "not cut": `parse_json` reports the depth
                # later
                return len(text)  # too deep to be read, whether it ends or not
        elif char in "}]" and _PAIRS[char] in opened:
            # a missing bracket in between is an error that can be repaired
            while opened.pop() != _PAIRS[char]:
                pass
            if not opened:
                return at
        if not char.isspace():
            last = char
    return None


def _closes(text: str, at: int) -> bool:
    """True if a quote ends its string, since JSON punctuation or the end of the text follows it.

    A quote inside a string, which should have been escaped, is followed by something else.
    """
    while at < len(text) and text[at].isspace():
        at += 1
    return at == len(text) or text[at] in ",:}]"


def problem_with(value: Any, schema: Any) -> str | None:  # noqa: ANN401 # any JSON, any JSON schema
    """Reason why a value violates a schema; None if it does not.

    Raises `ValueError` for an invalid schema.
    """
    try:
        error = first_error(value, schema)
    except ParseLimit as limit:
        return str(limit)
    if error is None:
        return None
    return f"at `{error.where or 'the top'}`: {error.message}"[:LONGEST]


def without_thoughts(text: str) -> str:
    """Text without a model's reasoning."""
    # after the last closing tag, the regex would search in vain for the end of each opening one
    end = max((found.end() for found in _CLOSING.finditer(text)), default=0)
    return (_OPENED.sub("", _THOUGHT.sub("", text[:end])) + text[end:]).strip()


def instructed(request: ModelRequest) -> ModelRequest:
    """Add the schema to the prompt, for a model that does not support schemas."""
    wanted = json.dumps(request.schema, ensure_ascii=False)
    words = f"Answer with JSON only. It must satisfy this JSON schema:\n{wanted}"
    *before, last = request.messages
    if last.role == "user":
        last = replace(last, text=f"{last.text}\n\n{words}")
        return replace(request, messages=(*before, last))
    return replace(request, messages=(*before, last, Message("user", words)))


def _readings(text: str, mend: bool) -> Iterator[Any]:
    """Yield possible JSON values of a text, the most literal first; raise `Unfit` if it is cut."""
    fenced = _FENCED.findall(text, 0, text.rfind("```") + 3)
    whole, parts = [text, *fenced], list[str]()
    # also from the first bracket to the last of its kind
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
    """Repair texts that are almost JSON, the last first; `_mended` limits its time."""
    from json_repair import loads

    found: list[Any] = []
    for one in reversed(texts):
        try:
            value: Any = loads(one)
            check_depth(value)
        except (ValueError, RecursionError):
            continue
        # `json_repair` turns prose into an empty text
        if value != "":
            found.append(value)
    return found


def _unfit(reply: ModelReply, why: str, usage: Usage) -> Failure:
    message = f"the reply does not satisfy its schema, {why}"
    return Failure("parse", "candidate", message, reply.text, usage)
