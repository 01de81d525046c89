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
"""Maximum token count accepted from a server: more than any model can read and write at once."""


@dataclass(frozen=True, slots=True)
class Taken:
    """Token counts of a reply, as the provider reports them."""

    tokens_in: int = 0
    """All input tokens, including the cached and written ones."""
    tokens_out: int = 0
    cached: int = 0
    """Read from the provider's cache."""
    written: int = 0
    """Written to the provider's cache."""


@dataclass(frozen=True, slots=True)
class Heard:
    """A reply before it is priced."""

    text: str
    finish: Finish
    tool_calls: tuple[ToolCall, ...] = ()
    taken: Taken | None = None
    """None if the server reported no counts, or impossible ones."""
    refusal: str = ""
    """Reason why there is no reply, if the model or a filter refused."""
    usage: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Counts as the server sent them."""


@dataclass(slots=True)
class Habits:
    """Request features that a server does not support, learnt from its errors."""

    schema: bool = True
    """True if the server accepts a JSON schema."""
    old_limit: bool = False
    """True if the reply limit is called `max_tokens`, not `max_completion_tokens`."""
    switched: bool = False
    """True once the name of the reply limit was switched."""
    seed: bool = True
    """True if the server accepts a seed."""

    def learn(self, message: str) -> bool:
        """Adjust to an error about an unsupported parameter; True if a retry makes sense."""
        text = message.lower()
        if self.schema and any(word in text for word in _SCHEMA_WORDS):
            self.schema = False
            return True
        if self.seed and _SEED.search(text) and any(word in text for word in _UNKNOWN):
            self.seed = False
            return True
        used = "max_tokens" if self.old_limit else "max_completion_tokens"
        if not self.switched and _unknown(text, used):
            # only once: a server that knows neither name would be asked forever
            self.switched = True
            self.old_limit = not self.old_limit
            return True
        return False


_SEED = re.compile(r"\bseed\b")
_SCHEMA_WORDS = ("response_format", "json_schema", "output_config", "output_format")
_UNKNOWN = ("unsupported", "unrecognized", "unknown", "not supported", "extra inputs", "unexpected")


def _unknown(text: str, name: str) -> bool:
    """True if a message says that a parameter is unknown and names it before the other limit."""
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
    """Serialization of requests and replies in one wire protocol."""

    def body(self, model: str, request: ModelRequest, habits: Habits) -> dict[str, Any]:
        """Body of a request."""
        ...

    def heard(self, body: Mapping[str, Any]) -> Heard | None:
        """Parsed reply; None if it is empty.

        Raises `msgspec.ValidationError` for a body that breaks the protocol.
        """
        ...

    def taken(self, body: Mapping[str, Any]) -> Taken | None:
        """Token counts of a reply; None if they are missing or impossible."""
        ...

    async def gather(self, events: AsyncIterator[dict[str, Any]]) -> dict[str, Any] | None:
        """Body of the complete reply, from stream events; None if the stream ended too early.

        Raises `msgspec.ValidationError` for an event that breaks the protocol.
        """
        ...


_JSON = msgspec.json.Decoder()


def decode(raw: bytes) -> Any:  # noqa: ANN401 # any JSON
    """Parse JSON that a server sent; raise `ValueError` for any error."""
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
    """True if a value is a token count that a reply can have."""
    # `True` is an int
    return type(value) is int and 0 <= value <= MOST_TOKENS


def maps(value: object) -> list[dict[str, Any]]:
    """Return the mappings in a list."""
    items = list_in(value)
    return [item for item in items if is_dict(item)]


def mapping(value: object) -> dict[str, Any]:
    """Return a mapping; an empty one for any other value."""
    return dict_in(value)


LONGEST = 600
"""Maximum characters shown of a provider's message."""

SHORTEST = 8
"""Minimum characters of a secret to hide: shorter ones are part of many words."""

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
"""Text that looks like a key, perhaps masked with stars: providers often quote what they received.

A word after `key` counts only if it contains a digit or a star.
"""

_FIX = {
    401: "the key is missing or wrong: look at {key}",
    403: "the key in {key} may not use this model",
    404: "there is no such model, or not at this address",
}


class Trouble(Exception):
    """One failed try of a call."""

    def __init__(self, failure: Failure, *, again: bool, after: float | None = None) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.again = again
        self.after = after
        """Seconds that the provider asks us to wait."""

    def arrive(self, usage: Usage = FREE) -> "Trouble":
        """Mark the reply as arrived, so that it is paid for; return self."""
        self.failure = replace(self.failure, arrived=True, usage=usage)
        return self

    def hide(self, secrets: Iterable[str]) -> None:
        """Remove secrets from message and detail: a provider may quote them."""
        known = tuple(secrets)
        message, detail = hidden(self.failure.message, known), hidden(self.failure.detail, known)
        self.failure = replace(self.failure, message=message, detail=detail)

    def final(self, tries: int, url: str = "") -> Failure:
        """Final failure after so many tries at an address; it is not retried."""
        where = f" at {bare(url)}" if url else ""
        often = f" ({tries} tries{where})" if tries > 1 else ""
        return replace(self.failure, message=self.failure.message + often, tried=True)


def bare(url: str) -> str:
    """URL without its credentials, query and fragment."""
    parts = urlsplit(without_login(url))
    return urlunsplit((parts.scheme, parts.netloc, parts.path, "", ""))


def hidden(text: str, secrets: Iterable[str]) -> str:
    """Text without the secrets, also in their JSON-escaped form."""
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
    """Failure that may be over soon and is retried."""
    return Trouble(Failure(kind, "infrastructure", message, detail), again=True, after=after)


def lasting(message: str, mend: str = "", kind: FailureKind = "harness") -> Trouble:
    """Failure that lasts until a person fixes the cause; it is not retried."""
    text = f"{message}; {mend}" if mend else message
    return Trouble(Failure(kind, "infrastructure", text), again=False)


def refused(message: str, detail: str = "", usage: Usage | None = None) -> Failure:
    """Failure for a text that the model, or a filter before it, refused."""
    return Failure("refused", "candidate", message, detail, usage or Usage(calls=1))


def of_status(name: str, status: int, headers: Mapping[str, str], raw: bytes, key: str) -> Trouble:
    """Classify an HTTP status other than 200; `key` names the source of the API key."""
    told, code = _told(raw)
    said = f"`{name}` answered {status}" + (f": {told}" if told else "")
    whole = f"{code} {told}"
    # a 429 for lack of credit is handled below: waiting does not help
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
    """Classify an exception of the HTTP library."""
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
    """Return message and error code of a provider's error body."""
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
    """Provider's message, shortened and without what looks like a key."""
    return _KEY.sub(MARK, text)[:LONGEST]


def _after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait by `Retry-After`, which is a number or a date."""
    for name, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        text = headers.get(name, "")
        try:
            return max(0.0, float(text) * scale)
        except ValueError:
            pass
        now = headers.get("date", "")
        try:
            # both dates come from the server, so our own clock does not matter
            left = (parsedate_to_datetime(text) - parsedate_to_datetime(now)).total_seconds()
        except (OverflowError, TypeError, ValueError):  # of a year such as 99999999999999999999
            continue
        return max(0.0, left)
    return None
