"""`kept doctor`."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import click

from kept.cli.command import Command
from kept.cli.options import json_option

State = Literal["ok", "warning", "problem"]
ENOUGH = 1024**3
"""Bytes that a disk should have left; a run of a thousand rollouts takes a hundredth of it."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    name: str
    state: State
    text: str


@click.command(cls=Command, examples=("kept doctor", "kept doctor --json"))
@json_option
def doctor(as_json: bool) -> int:
    """Say what works on this machine, and what holds a command back.

    Looks at Python, the sandbox, git, models and agents on this machine and the folder of the runs.
    Exits with 2 when something makes a run impossible.
    """
    from kept.cli import output

    found = [*_python(), *_sandbox(), *_git(), *_local_models(), *_agents(), *_home()]
    if as_json:
        rows = [{"name": one.name, "state": one.state, "text": one.text} for one in found]
        output.document({"findings": rows, "enforced": dict(_enforced())})
    else:
        signs = {"ok": "", "warning": "warning: ", "problem": "problem: "}
        width = max(len(one.name) for one in found)
        lines = (f"{one.name:<{width}}  {signs[one.state]}{one.text}".rstrip() for one in found)
        output.answer("\n".join(lines))
    return 2 if any(one.state == "problem" for one in found) else 0


def _python() -> Iterator[Finding]:
    import platform
    import sys

    from kept._version import __version__

    yield Finding("kept", "ok", f"{__version__}, in {Path(__file__).parents[1]}")
    where = "a virtual environment" if sys.prefix != sys.base_prefix else "no virtual environment"
    yield Finding("python", "ok", f"{platform.python_version()}, {sys.executable} ({where})")
    linux = sys.platform == "linux"
    text = platform.platform() + ("" if linux else ": there are no walls round commands here")
    yield Finding("platform", "ok" if linux else "warning", text)


def _enforced() -> Iterator[tuple[str, bool]]:
    from kept.sandbox import abilities

    yield from abilities().enforced().items()


def _sandbox() -> Iterator[Finding]:
    from kept.sandbox import abilities

    able = abilities()
    if not able.walls:
        text = f"does not work ({able.why_not}); on Debian: apt-get install bubblewrap"
        yield Finding("bwrap", "warning", text)
    elif not able.overlay:
        text = f"works, and each worker needs a copy of the task's folder ({able.why_not})"
        yield Finding("bwrap", "ok", text)
    else:
        yield Finding("bwrap", "ok", "works, and no copy of the task's folder is needed")
    for what, holds in _enforced():
        yield Finding("enforced" if holds else "NOT enforced", "ok" if holds else "warning", what)


def _git() -> Iterator[Finding]:
    import shutil
    import subprocess

    path = shutil.which("git")
    if path is None:
        yield Finding("git", "warning", "not there: `kept adopt --commit` will not work")
        return
    done = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    yield Finding("git", "ok", done.stdout.strip() or path)


def _local_models() -> Iterator[Finding]:
    """They are optional, so that nothing here is ever a warning."""
    from importlib.util import find_spec

    from kept.models.weights import KNOWN

    engine = find_spec("xllamacpp") is not None
    for weights in KNOWN.values():
        lacks = [] if engine else ["pip install 'kept[local]'"]
        lacks += [] if weights.present else [f"kept models pull {weights.name}"]
        text = f"not here: {' and '.join(f'`{line}`' for line in lacks)}" if lacks else "works"
        yield Finding(f"local/{weights.name}", "ok", text)


def _agents() -> Iterator[Finding]:
    """As optional as models on this machine."""
    from kept.harness import CLIS
    from kept.harness.program import program_of

    for cli in CLIS.values():
        program = program_of(cli)
        yield Finding(
            cli.name, "ok", str(program.path) if program else f"not here: `{cli.install}`"
        )


def _home() -> Iterator[Finding]:
    import shutil

    from kept.settings import kept_home
    from kept.store.home import Home

    home = Home.find(Path.cwd())
    path = home.path.absolute()
    there = next(folder for folder in (path, *path.parents) if folder.exists())
    named = "KEPT_HOME is " if kept_home() else ""
    if obstacle := home.obstacle():
        yield Finding("runs", "problem", f"{named}{path}, {obstacle}")
        return
    yield Finding("runs", "ok", f"{named}{path}" + ("" if path.exists() else ", not yet made"))
    free = shutil.disk_usage(there).free
    state: State = "ok" if free >= ENOUGH else "warning" if free else "problem"
    yield Finding("disk", state, f"{free / 1024**3:.1f} GiB free")
