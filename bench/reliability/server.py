"""The server that all arms pay: it answers after a while, and knows what it answered when."""

import threading
import time
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple, Self

from bench.reliability.world import share

LATENCY_SECONDS = 0.05


class Reply(NamedTuple):
    """One answered call."""

    path: str
    sent: float


class CallServer:
    """Answers `/CANDIDATE/CASE` with a number that depends on the path alone."""

    def __init__(self) -> None:
        self._replies: list[Reply] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                time.sleep(LATENCY_SECONDS)
                body = f"{share(self.path):.6f}".encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
                outer._replies.append(Reply(self.path, time.monotonic()))

            def log_message(self, format: str, *args: object) -> None:
                """Log nothing."""

            def handle(self) -> None:
                try:
                    super().handle()
                except ConnectionError:
                    return  # the client was killed

        class Server(ThreadingHTTPServer):
            request_queue_size = 128
            daemon_threads = True

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]

    @property
    def replies(self) -> Sequence[Reply]:
        """Every reply, in the order in which they were sent."""
        return self._replies

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
