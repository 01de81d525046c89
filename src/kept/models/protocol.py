"""Common base of the wire protocols, and classification of call failures.

A request and its answer are JSON in both public protocols.

| what happened | kind | blame | tried again |
|---|---|---|---|
| 400, 401, 403, 404 and the like, a redirect, no credit | harness | infrastructure | no |
| the request is longer than the model can read | context | candidate | no |
| the provider's filter or the model would not answer | refused | candidate | no |
| 429 | rate_limit | infrastructure | yes |
| 408, 409, 425, 5xx, a reply that breaks the protocol | server | infrastructure | yes |
| no connection, or it broke | network | infrastructure | yes |
| too late, or a stream that stalls | timeout | infrastructure | yes |
| a reply beyond all bounds | limit | infrastructure | no |
"""

import json
import re
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field, replace
from email.utils import parsedate_to_datetime
from typing import Any, Protocol, TypeGuard, cast
from urllib.parse import urlsplit, urlunsplit

import msgspec

from kept.core.llm import Finish, ModelRequest, ToolCall
from kept.core.parsing import MAX_DEPTH, check_depth
from kept.core.rollout import FREE, Failure, FailureKind, Usage
from kept.core.untyped import dict_in, is_dict, list_in
from kept.settings import without_login

MOST_TOKENS = 10_000_000
"""Tokens that a reply may claim: more than any model can read and write at once."""


@dataclass(frozen=True, slots=True)
class Taken:
    """Tokens that a reply took, as the provider counts them."""

    tokens_in: int = 0
    """All of them, those that follow included."""
    tokens_out: int = 0
    cached: int = 0
    """Read from the provider's cache."""
    written: int = 0
    """Written to the provider's cache."""


@dataclass(frozen=True, slots=True)
class Heard:
    """A reply, before it has a price."""

    text: str
    finish: Finish
    tool_calls: tuple[ToolCall, ...] = ()
    taken: Taken | None = None
    """None where the server counted nothing, or nothing that can be true."""
    refusal: str = ""
    """Why there is none, where the model or a filter would not answer."""
    usage: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The counts as the server sent them."""


@dataclass(slots=True)
class Habits:
    """What a server turned out not to know; learnt from its errors, and kept."""

    schema: bool = True
    """Whether it can be held to a JSON schema."""
    old_limit: bool = False
    """Whether the longest reply is called `max_tokens`, and not `max_completion_tokens`."""
    switched: bool = False
    """Whether that was learnt."""
    seed: bool = True
    """Whether it takes a seed."""

    def learn(self, message: str) -> bool:
        """Whether an error says that something is not known, and may be done without."""
        text = message.lower()
        if self.schema and any(word in text for word in _SCHEMA_WORDS):
            self.schema = False
            return True
        if self.seed and _SEED.search(text) and any(word in text for word in _UNKNOWN):
            self.seed = False
            return True
        used = "max_tokens" if self.old_limit else "max_completion_tokens"
        if not self.switched and _unknown(text, used):
            # once: a server that knows neither name would be asked for ever
            self.switched = True
            self.old_limit = not self.old_limit
            return True
        return False


_SEED = re.compile(r"\bseed\b")
_SCHEMA_WORDS = ("response_format", "json_schema", "output_config", "output_format")
_UNKNOWN = ("unsupported", "unrecognized", "unknown", "not supported", "extra inputs", "unexpected")


def _unknown(text: str, name: str) -> bool:
    """Whether a message is about this parameter before all others, and does not know it."""
    first = min(
        (
            found
            for word in ("max_completion_tokens", "max_tokens")
            if (found := text.find(word)) >= 0
        ),
        default=-1,
    )
    return first >= 0 and text.startswith(name, first) and any(word in text for word in _UNKNOWN)


class Speech(Protocol):
    """How one protocol spells requests and replies."""

    def body(self, model: str, request: ModelRequest, habits: Habits) -> dict[str, Any]:
        """A request."""
        ...

    def heard(self, body: Mapping[str, Any]) -> Heard | None:
        """A reply; None where there is nothing in it.

        Raises `msgspec.ValidationError` for a body that breaks the protocol.
        """
        ...

    def taken(self, body: Mapping[str, Any]) -> Taken | None:
        """What a reply says that it took; None where it does not, or what cannot be."""
        ...

    async def gather(self, events: AsyncIterator[dict[str, Any]]) -> dict[str, Any] | None:
        """The whole reply of a stream; None when the stream ended before it.

        Raises `msgspec.ValidationError` for an event that breaks the protocol.
        """
        ...


_JSON = msgspec.json.Decoder()


def decode(raw: bytes) -> Any:  # noqa: ANN401 # any JSON
    """Parse JSON that a server sent; raises `ValueError`, whatever is wrong with it."""
    try:
        value = _JSON.decode(raw)
        # fewer brackets than levels cannot nest deeper: most replies need no walk
        if raw.count(b"[") + raw.count(b"{") > MAX_DEPTH:
            check_depth(value)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        # bytes that are not UTF-8 are a ValueError, deep nesting is a RecursionError
        raise ValueError(f"broken or cut off ({error})") from error
    return value


def is_count(value: object) -> TypeGuard[int]:
    """True for a number of tokens that a reply can have taken."""
    # `True` is an int
    return type(value) is int and 0 <= value <= MOST_TOKENS


def maps(value: object) -> list[dict[str, Any]]:
    """The mappings of a list."""
    items = list_in(value)
    return [item for item in items if is_dict(item)]


def mapping(value: object) -> dict[str, Any]:
    """A mapping; an empty one for anything else."""
    return dict_in(value)


LONGEST = 600
"""Characters of a provider's message that are told."""

SHORTEST = 8
"""Characters of a secret: what is shorter stands in many a word."""

MARK = "[secret]"

_OVERFLOW = re.compile(
    r"context[ _-]?(length|window|size|limit)|maximum context|prompt is too long|input is too long|"
    r"too many (input )?tokens|exceeds? the (available )?context|request_too_large",
    re.IGNORECASE,
)
_FILTERED = re.compile(r"content[ _]?(filter|policy|management)|responsibleai", re.IGNORECASE)
_NO_CREDIT = re.compile(r"insufficient_quota|credit balance|billing", re.IGNORECASE)
_PASSING = (408, 409, 425)
_KEY = re.compile(
    r"\b(?:(?:sk|pk|key)[-_]|Bearer[-_ ]|key (?=\S*[\d*]))[A-Za-z0-9_\-*.]{8,}", re.IGNORECASE
)
"""Looks like a key, perhaps with stars in it: providers like to quote what they were sent. A word
behind `key` is one only where it has a figure or a star in it."""

_FIX = {
    401: "the key is missing or wrong: look at {key}",
    403: "the key in {key} may not use this model",
    404: "there is no such model, or not at this address",
}


class Trouble(Exception):
    """A try of a call that came to nothing."""

    def __init__(self, failure: Failure, *, again: bool, after: float | None = None) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.again = again
        self.after = after
        """Seconds that the provider wants to be left alone."""

    def arrive(self, usage: Usage = FREE) -> "Trouble":
        """The same for a reply that arrived, and is to be paid for."""
        self.failure = replace(self.failure, arrived=True, usage=usage)
        return self

    def hide(self, secrets: Iterable[str]) -> None:
        """Take out what was sent in confidence: a provider may quote it."""
        known = tuple(secrets)
        message, detail = hidden(self.failure.message, known), hidden(self.failure.detail, known)
        self.failure = replace(self.failure, message=message, detail=detail)

    def final(self, tries: int, url: str = "") -> Failure:
        """The failure, when it was tried so often at an address and is not tried again."""
        where = f" at {bare(url)}" if url else ""
        often = f" ({tries} tries{where})" if tries > 1 else ""
        return replace(self.failure, message=self.failure.message + often, tried=True)


def bare(url: str) -> str:
    """An address without what may be secret in it."""
    parts = urlsplit(without_login(url))
    return urlunsplit((parts.scheme, parts.netloc, parts.path, "", ""))


def hidden(text: str, secrets: Iterable[str]) -> str:
    """A text without what was sent in confidence, also as it would stand inside JSON."""
    text = without_login(text)
    for secret in secrets:
        for plain in (secret, secret.removeprefix("Bearer ")):
            if len(plain) >= SHORTEST:
                for form in (plain, json.dumps(plain)[1:-1]):
                    text = text.replace(form, MARK)
    return text


def passing(
    kind: FailureKind, message: str, detail: str = "", after: float | None = None
) -> Trouble:
    """An outage that may be over soon."""
    return Trouble(Failure(kind, "infrastructure", message, detail), again=True, after=after)


def lasting(message: str, mend: str = "", kind: FailureKind = "harness") -> Trouble:
    """Something that stays wrong until a person mends it."""
    text = f"{message}; {mend}" if mend else message
    return Trouble(Failure(kind, "infrastructure", text), again=False)


def refused(message: str, detail: str = "", usage: Usage | None = None) -> Failure:
    """The model, or a filter before it, would not answer to this text."""
    return Failure("refused", "candidate", message, detail, usage or Usage(calls=1))


def of_status(name: str, status: int, headers: Mapping[str, str], raw: bytes, key: str) -> Trouble:
    """What an HTTP status other than 200 means; `key` names where the key comes from."""
    told, code = _told(raw)
    said = f"`{name}` answered {status}" + (f": {told}" if told else "")
    whole = f"{code} {told}"
    if status == 429 and not _NO_CREDIT.search(whole):
        return passing("rate_limit", said, after=_after(headers))
    if status >= 500 or status in _PASSING:
        return passing("server", said, after=_after(headers))
    if 300 <= status < 400:
        return lasting(f"`{name}` answered {status}: it is elsewhere", "look at its `base_url`")
    if status in (400, 413, 422) and _OVERFLOW.search(whole):
        return Trouble(Failure("context", "candidate", said), again=False)
    if status in (400, 403) and _FILTERED.search(whole):
        return Trouble(refused(said), again=False)
    if _NO_CREDIT.search(whole):
        return lasting(said, "the account has no credit left")
    return lasting(said, _FIX.get(status, "").format(key=key))


def of_error(name: str, error: BaseException) -> Trouble:
    """What an exception of the HTTP library means."""
    what = _plain(str(error)) or type(error).__name__
    if isinstance(error, TimeoutError):
        return passing("timeout", f"`{name}` did not answer in time: {what}")
    certificate = "certificate" in type(error).__name__.lower()
    if certificate:
        hint = "name the file of your authority in SSL_CERT_FILE"
        return lasting(f"`{name}` is not who it says it is: {what}", hint)
    if "InvalidURL" in type(error).__name__:
        return lasting(f"the address of `{name}` is none: {what}", "look at its `base_url`")
    return passing("network", f"the connection to `{name}` failed: {what}")


def _told(raw: bytes) -> tuple[str, str]:
    """What a provider says about an error, and what it calls it."""
    try:
        body: Any = decode(raw)
    except ValueError:
        text = raw[:LONGEST].decode("utf-8", "replace").strip()
        return ("" if text.startswith("<") else _plain(text)), ""
    error: Any = body.get("error", cast("object", body)) if is_dict(body) else body
    if not is_dict(error):
        return _plain(str(error)), ""
    code = " ".join(str(error.get(name) or "") for name in ("code", "type"))
    return _plain(str(error.get("message") or "")), code


def _plain(text: str) -> str:
    """A provider's words, short and without what looks like a key."""
    return _KEY.sub(MARK, text)[:LONGEST]


def _after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait, as `Retry-After` has them: a number, or a date."""
    for name, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        text = headers.get(name, "")
        try:
            return max(0.0, float(text) * scale)
        except ValueError:
            pass
        now = headers.get("date", "")
        try:
            # both dates are the server's, so that no clock of ours matters
            left = (parsedate_to_datetime(text) - parsedate_to_datetime(now)).total_seconds()
        except (OverflowError, TypeError, ValueError):  # of a year such as 99999999999999999999
            continue
        return max(0.0, left)
    return None
