"""A loopback server that scores after 20 ms and writes down every request and every reply."""

import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

from tests.engine.worlds import draw

LATENCY = 0.02


class CountingServer:
    """Serves `/CANDIDATE/CASE`; `asked` counts requests, `replied` the last reply to each."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.replied: dict[str, float] = {}
        self._lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                with outer._lock:
                    outer.asked[self.path] += 1
                time.sleep(LATENCY)
                # noise, so that some steps are kept: each keep swaps best/ and rebases open steps
                body = f"{draw(self.path):.6f}".encode()
                self.send_response(200)
                self.end_headers()
                self.wfile.write(body)
                with outer._lock:
                    outer.replied.setdefault(self.path, time.time())

            def log_message(self, format: str, *args: object) -> None:
                pass

            def handle(self) -> None:
                try:
                    super().handle()
                except ConnectionError:
                    return  # the client was killed; that is what these tests are about

        class Server(ThreadingHTTPServer):
            request_queue_size = 128  # the default of 5 has the kernel drop connections
            daemon_threads = True

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
