"""What a task comes with: files and folders, read once, never a part of themselves."""

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kept.core.words import count
from kept.errors import SetupError
from kept.evaluators.tools.shared_files import MOST_BYTES, MOST_FILES
from kept.sandbox.copies import LEFT_OUT
from kept.settings import without_secrets


@dataclass(frozen=True, slots=True)
class Found:
    """The files that inputs come to, by path below the input folder."""

    files: dict[str, Path]
    left_out: tuple[str, ...] = ()
    """What is no plain file."""

    def read(self) -> Mapping[str, bytes]:
        """What they hold, binary or not, without the secrets of our environment."""
        return without_secrets({name: path.read_bytes() for name, path in self.files.items()})


def find_inputs(folder: Path, inputs: Sequence[str], never: Sequence[Path] = ()) -> Found:
    """Look at all of them, from a folder; a `SetupError` where one is not there, or too much.

    What is in one of the folders that are never looked into is left out: the place that the run
    itself writes to may lie in an input.
    """
    places = {name: folder / name for name in inputs}
    _check_there(places)
    files: dict[str, Path] = {}
    strange: list[str] = []
    apart = {path.resolve() for path in never}
    for given in inputs:
        for name, path in _files(places[given].resolve(), apart):
            if name in files:
                hint = "rename one of them, or give the folder that both are in"
                raise SetupError(f"two inputs would be `input/{name}`", hint=hint)
            if _is_plain(path):
                files[name] = path
            else:
                strange.append(name)
    _check_size(files)
    return Found(files, tuple(strange))


def _check_there(places: Mapping[str, Path]) -> None:
    """Refuse what was named and cannot be given: a run without it would be paid for in vain."""
    wrong = [f"there is no input `{name}`" for name, path in places.items() if not path.exists()]
    wrong += [
        f"the input `{name}` is no file and no folder"
        for name, path in places.items()
        if path.exists() and not path.is_dir() and not path.is_file()
    ]
    if wrong:
        raise SetupError("; ".join(wrong))


def _files(given: Path, apart: set[Path]) -> Iterator[tuple[str, Path]]:
    if not given.is_dir():
        yield given.name, given
        return
    for folder, folders, names in os.walk(given):
        here = Path(folder)
        folders[:] = sorted(
            one for one in folders if one not in LEFT_OUT and (here / one).resolve() not in apart
        )
        links = [one for one in folders if (here / one).is_symlink()]
        for name in sorted([*names, *links]):
            path = here / name
            yield f"{given.name}/{path.relative_to(given).as_posix()}", path


def _is_plain(path: Path) -> bool:
    # a link may lead anywhere, and a pipe has no end
    return stat.S_ISREG(path.lstat().st_mode)


def _check_size(files: dict[str, Path]) -> None:
    if len(files) > MOST_FILES:
        hint = f"give {count(MOST_FILES, 'file')} at most"
        raise SetupError(f"the inputs are {count(len(files), 'file')}", hint=hint)
    size = sum(path.stat().st_size for path in files.values())
    if size > MOST_BYTES:
        hint = f"give {MOST_BYTES / 2**20:g} MiB at most"
        raise SetupError(f"the inputs are {size / 2**20:.0f} MiB", hint=hint)
