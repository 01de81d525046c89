"""How a run is named to the person who is to type its name."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from kept.settings import program
from kept.store.home import Home


def run_name(folder: Path) -> str:
    """The id where that is enough to find the run from here, else the path of its folder."""
    folder = folder.resolve()
    if Home.find(Path.cwd()).runs.resolve() == folder.parent:
        return folder.name
    return path_from_here(folder)


def path_from_here(path: str | Path) -> str:
    """A path as one types it here: relative when it is below the working folder."""
    whole = Path(path).absolute()
    here = Path.cwd()
    # links stay links: `best` is one, and the place it points to is nobody's business
    return str(whole.relative_to(here)) if whole.is_relative_to(here) else str(whole)


def command_for(verb: str, folder: Path, settings: Sequence[str] = ()) -> str:
    """The command line that does something with a run."""
    words = [program(), verb, run_name(folder)]
    for setting in settings:
        words += ["--set", setting]
    return shlex.join(words)
