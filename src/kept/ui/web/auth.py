"""Access control of the web UI, and its refusals with status codes.

Access is for a browser on this machine that has the printed link. Three checks run before any
page. `Host` must be ours, against DNS rebinding. A request with an origin must come from our own
pages. The cookie must hold the token, which the printed link sets.

Actions need more: a form has a token known only to our pages. Other requests must be JSON, which
no form can send (`site.Site.form`, `site.check_json`).
"""

import secrets
from collections.abc import Iterable, Sequence
from urllib.parse import parse_qsl, quote, urlencode

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kept.errors import KeptError

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    # not `no-referrer`: with it browsers send `Origin: null` for our own forms
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)
NO_LINK = (
    "This page is for whoever started it.\n\n"
    "Open the link that `kept view` printed: it ends in ?token=...\n"
    "Started again, `kept view` prints a new one.\n"
)
_TAKEN = ("GET", "HEAD", "POST")


class Guard:
    """ASGI middleware that checks access; every request behind it is trusted."""

    def __init__(self, app: ASGIApp, token: str, port: int) -> None:
        self._app = app
        self._token = token
        self._cookie = f"kept-{port}"
        """Cookie name; it holds the port, as browsers share cookies between all ports of a host."""
        self._hosts = {f"{name}:{port}" for name in ("127.0.0.1", "localhost")}
        self._origins = {f"http://{host}" for host in self._hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it here."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        answer = _Answer(send)
        pairs: Iterable[tuple[bytes, bytes]] = scope["headers"]
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in pairs}
        refusal = self._refusal(scope, headers)
        if refusal is not None:
            await answer.text(*refusal)
        elif self._has_cookie(headers.get("cookie", "")):
            await self._app(scope, receive, answer.guarded)
        elif (clean := self._traded(scope)) is not None:
            cookie = f"{self._cookie}={self._token}; Path=/; HttpOnly; SameSite=Strict"
            more = [(b"location", clean.encode()), (b"set-cookie", cookie.encode())]
            await answer.text(303, "", more)
        else:
            await answer.text(401, NO_LINK)

    def _refusal(self, scope: Scope, headers: dict[str, str]) -> tuple[int, str] | None:
        if headers.get("host", "") not in self._hosts:
            return 403, "This server answers to 127.0.0.1 alone.\n"
        if "origin" in headers and headers["origin"] not in self._origins:
            return 403, "Requests from other pages are refused.\n"
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return 403, "Requests from other pages are refused.\n"
        if scope["method"] not in _TAKEN:
            return 405, "Nothing here takes that.\n"
        # an address typed or opened from another program must not change anything
        if scope["method"] == "POST" and headers.get("sec-fetch-site", "same-origin") == "none":
            return 403, "Only these pages themselves may ask for something to be done.\n"
        return None

    def _has_cookie(self, header: str) -> bool:
        # parsed by hand: other programs on this machine share the cookies, and the library's parser
        # stops at the first malformed one
        pairs = (pair.strip().partition("=") for pair in header.split(";"))
        given = [value for name, _, value in pairs if name == self._cookie]
        return any(secrets.compare_digest(one.encode(), self._token.encode()) for one in given)

    def _traded(self, scope: Scope) -> str | None:
        """Path of the link without its token; None if the token is wrong."""
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = [value for name, value in query if name == "token"]
        if len(given) != 1 or not secrets.compare_digest(given[0].encode(), self._token.encode()):
            return None
        rest = urlencode([pair for pair in query if pair[0] != "token"])
        # exactly one slash: two would lead to another host
        path = "/" + quote(scope["path"].lstrip("/\\"))
        return f"{path}?{rest}" if rest else path


class _Answer:
    """Response with the headers that every answer needs."""

    def __init__(self, send: Send) -> None:
        self._send = send

    async def guarded(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *HEADERS]}
        await self._send(message)

    async def text(self, status: int, words: str, more: Sequence[tuple[bytes, bytes]] = ()) -> None:
        body = words.encode()
        headers = [(b"content-type", b"text/plain; charset=utf-8"), *more]
        headers.append((b"content-length", str(len(body)).encode()))
        await self.guarded({"type": "http.response.start", "status": status, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})


class Refused(KeptError):
    """A refused request, with its status code."""

    def __init__(self, status: int, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.status = status
