"""The server: a socket on 127.0.0.1, a token, and the app behind its guard."""

import asyncio
import secrets
import signal
import socket
from collections.abc import Callable
from contextlib import suppress

import uvicorn

from kept.errors import SetupError
from kept.run import stop_signals
from kept.store.home import Home
from kept.ui.web.app import make_app
from kept.ui.web.guard import Guard
from kept.ui.web.source import Runs

HOST = "127.0.0.1"


def serve(home: Home, path: str, port: int, opened: Callable[[str], None]) -> None:
    """Serve until interrupted; `opened` is given the link as soon as it works."""
    try:
        listening = socket.create_server((HOST, port))
    except OSError as error:
        raise SetupError(
            f"cannot listen on {HOST}:{port}: {error.strerror}",
            hint="give another port, or --port 0 for any that is free",
        ) from error
    with listening:
        bound = int(listening.getsockname()[1])
        token = secrets.token_urlsafe(24)
        app = make_app(Runs(home))
        # what breaks is told on its page, and logged in a line
        config = uvicorn.Config(
            Guard(app, token, bound), log_level="critical", access_log=False, lifespan="off",
            server_header=False, timeout_graceful_shutdown=5,
        )  # fmt: skip
        server = uvicorn.Server(config)
        # streams that never end by themselves look at this
        app.state.ending = lambda: server.should_exit
        # uvicorn knows no SIGHUP, and lets SIGTERM end the process once the server has shut down
        for number in set(stop_signals()) - {signal.SIGINT}:
            signal.signal(number, server.handle_exit)
        # an interrupt is how it ends
        with suppress(KeyboardInterrupt):
            opened(f"http://{HOST}:{bound}{path}?token={token}")
            asyncio.run(server.serve(sockets=[listening]))
