"""Requests to the real server, with or without what a browser would send."""

import http.client
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit


@dataclass(frozen=True)
class Reply:
    status: int
    headers: dict[str, str]
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


@dataclass(frozen=True)
class Site:
    link: str
    """As `kept view` printed it."""
    home: Path
    pid: int
    runs: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def base(self) -> str:
        parts = urlsplit(self.link)
        return f"{parts.scheme}://{parts.netloc}"

    @property
    def port(self) -> int:
        port = urlsplit(self.link).port
        assert port is not None
        return port

    @property
    def token(self) -> str:
        return parse_qs(urlsplit(self.link).query)["token"][0]

    @property
    def cookie(self) -> str:
        return f"kept-{self.port}={self.token}"

    def run(self, recipe: str, number: int = 0) -> str:
        """The id of a run of a kind, the newest first."""
        rows = self.get("/api/runs").json
        return [row["id"] for row in rows if row["recipe"] == recipe][number]

    def ask(self, path: str, *, method: str = "GET", body: str = "", **headers: str) -> Reply:
        """A request with these headers, and a `Host` that is right unless one is given."""
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        data = body.encode()
        if data:
            given["Content-Length"] = str(len(data))
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=90)
        connection.putrequest(method, path, skip_host="Host" in given, skip_accept_encoding=True)
        for name, value in given.items():
            connection.putheader(name, value)
        connection.endheaders(data or None)
        reply = connection.getresponse()
        found = {name.lower(): value for name, value in reply.getheaders()}
        text = reply.read().decode()
        connection.close()
        return Reply(reply.status, found, text)

    def get(self, path: str, **headers: str) -> Reply:
        """What somebody with the cookie gets."""
        return self.ask(path, Cookie=self.cookie, **headers)

    def post(self, path: str, told: object, **headers: str) -> Reply:
        """What somebody with the cookie gets who sends JSON."""
        given = {"Content_Type": "application/json", "Cookie": self.cookie, **headers}
        return self.ask(path, method="POST", body=json.dumps(told), **given)
