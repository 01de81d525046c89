"""A server that speaks as much of Qdrant as an index needs, on loopback."""

import math
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web


@dataclass
class QdrantServer:
    """Points by collection, and what was asked."""

    url: str = ""
    points: dict[str, dict[int, list[float]]] = field(default_factory=dict[str, Any])
    log: list[tuple[str, str, str]] = field(default_factory=list[Any])
    """Method, path and key of every request."""
    broken: bool = False

    async def handle(self, request: web.Request) -> web.Response:
        self.log.append((request.method, request.path, request.headers.get("api-key", "")))
        if self.broken:
            return web.json_response({"status": {"error": "no more room"}}, status=507)
        body: Any = await request.json() if request.can_read_body else {}
        _, _, name, *rest = request.path.split("/")
        result = self._result(request.method, name, "/".join(rest), body)
        return web.json_response({"result": result, "status": "ok", "time": 0.0})

    def _result(self, method: str, name: str, what: str, body: Any) -> Any:
        if what == "exists":
            return {"exists": name in self.points}
        if what == "points/count":
            return {"count": len(self.points[name])}
        if what == "points/query":
            near = [
                {"id": n, "version": 0, "score": _cosine(row, body["query"]["nearest"])}
                for n, row in self.points[name].items()
            ]
            near.sort(key=lambda point: -float(str(point["score"])))
            return {"points": near[: body["limit"]]}
        if what == "points":
            for point in body["points"]:
                self.points[name][point["id"]] = point["vector"]
            return {"operation_id": 0, "status": "completed"}
        assert what == ""
        if method == "DELETE":
            del self.points[name]
        else:
            assert body["vectors"]["distance"] == "Cosine"
            self.points[name] = {}
        return True


def _cosine(one: list[float], other: list[float]) -> float:
    return sum(x * y for x, y in zip(one, other, strict=True)) / (
        math.hypot(*one) * math.hypot(*other) or 1.0
    )


@asynccontextmanager
async def serving(server: QdrantServer) -> AsyncGenerator[QdrantServer]:
    """Have it listen."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield server
    finally:
        await runner.cleanup()
