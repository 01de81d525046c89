"""Where the program of an agent CLI lies, and what has to be seen for it to run."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from kept.sandbox.coding_agents.cli import Cli
from kept.settings import child_environment

_MODULES = "node_modules"


@dataclass(frozen=True, slots=True)
class Program:
    """A program, as a command will find it."""

    path: Path
    """The file itself, links followed."""
    folders: tuple[Path, ...]
    """Where it is looked for and what it is made of; also where that lies below /tmp, which is
    private between walls, as the home of a container or of a test may."""


def program_of(cli: Cli) -> Program | None:
    """The program of a CLI; None for nowhere."""
    found = _which(cli.program)
    if found is None:
        return None
    folders = [found.parent, _installed(found.resolve())]
    if node := _which("node"):
        folders += [node.parent, node.resolve().parent]
    return Program(found.resolve(), tuple(dict.fromkeys(folders)))


def _which(name: str) -> Path | None:
    found = shutil.which(name, path=child_environment({})["PATH"])
    return Path(found) if found else None


def _installed(path: Path) -> Path:
    """The folder of npm's that a file was installed with, its neighbours included; or its own."""
    outer = (folder for folder in reversed(path.parents) if folder.name == _MODULES)
    return next(outer, path.parent)
