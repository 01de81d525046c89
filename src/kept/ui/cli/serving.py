"""A server in the foreground: it says where it listens, and ends when it is told to."""

import asyncio

from kept.core.ports import Model
from kept.errors import SetupError
from kept.run import stop_signals
from kept.ui.cli import _output


async def serve_until_stopped(model: Model, port: int, *, as_json: bool = False) -> None:
    """Serve a model until SIGINT, SIGTERM or SIGHUP."""
    from kept.models.local.local_server import HOST, start_server

    stopped = asyncio.Event()
    for number in stop_signals():
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    try:
        runner, bound = await start_server(model, port)
    except OSError as error:
        raise SetupError(
            f"cannot listen on {HOST}:{port}: {error.strerror}",
            hint="give another port, or --port 0 for any that is free",
        ) from error
    _output.address(f"http://{HOST}:{bound}/v1", as_json=as_json)
    _output.note(f"serving {model.name}; interrupt to stop")
    await stopped.wait()
    await runner.cleanup()
