"""Web server of the report pages, and export of one run as a single HTML file.

The server listens on 127.0.0.1, with a token and the access guard before the app. An exported
page contains its styles, has no script, and its policy allows nothing more.
"""

import asyncio
import base64
import hashlib
import secrets
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import uvicorn
from markupsafe import Markup

from kept.engine.stop import stop_signals
from kept.errors import SetupError
from kept.store.home import Home
from kept.store.overview import Glance
from kept.store.reader import Run
from kept.ui.web.app import make_app, run_view
from kept.ui.web.auth import Guard
from kept.ui.web.kinds import kind_of
from kept.ui.web.run_page import Asked
from kept.ui.web.run_source import Runs
from kept.ui.web.step_page import step_view
from kept.ui.web.templates import HERE, Places, environment, render

MOST = 40
"""Maximum number of kept steps that are shown in full."""


def export(folder: Path) -> str:
    """Complete HTML file of a run."""
    told = Glance(folder.resolve()).refresh()
    kind = kind_of(told.begun.recipe)
    shown = [row.step for row in told.rows if row.kept or row.best][-MOST:]
    links = Places(set(shown))
    css = (HERE / "static" / "app.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()
    with Run(told.folder, told) as run:
        view = run_view(run, told, kind, links, Asked())
        steps = [step_view(run, told, step, links) for step in shown] if kind.steps else []
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:"
    # safe unescaped: our own stylesheet does not contain `</`, which would end the style element
    inside = {"css": Markup(css), "policy": policy, "exported": steps}
    root = Home.around(told.folder).path.parent
    return render(environment(root), kind.template, links, **view, **inside)


HOST = "127.0.0.1"


def serve(home: Home, path: str, port: int, opened: Callable[[str], None]) -> None:
    """Serve until interrupted; `opened` is called with the link once it works."""
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
        # errors are shown on their page and logged in one line by the app itself
        config = uvicorn.Config(
            Guard(app, token, bound), log_level="critical", access_log=False, lifespan="off",
            server_header=False, timeout_graceful_shutdown=5,
        )  # fmt: skip
        server = uvicorn.Server(config)
        # endless streams poll this
        app.state.ending = lambda: server.should_exit
        # uvicorn does not handle SIGHUP, and re-raises SIGTERM after the server has shut down
        for number in set(stop_signals()) - {signal.SIGINT}:
            signal.signal(number, server.handle_exit)
        # Ctrl-C is the normal way to stop
        with suppress(KeyboardInterrupt):
            opened(f"http://{HOST}:{bound}{path}?token={token}")
            asyncio.run(server.serve(sockets=[listening]))
