"""Where things of a run lie: beside its folder, or further up in its workspace.

The deliverable is looked for in four places, and a folder without files is none of them.
"""

from collections.abc import Iterator
from pathlib import Path

HEIGHT = 5
"""Folders above a run's own that may be its workspace."""

FINAL = "FINAL"

COMPLETION = "run_completion.json"
"""What every run of the source has at its end."""

JOURNAL = "journal.jsonl"
"""What a run of ours has, and one of the source has not."""


def workspaces(folder: Path) -> Iterator[Path]:
    """The folder of a run and those above it, nearest first."""
    whole = folder.resolve()
    yield whole
    yield from list(whole.parents)[:HEIGHT]


def events_path(folder: Path, run_id: str) -> Path | None:
    """The events of a run: of its workspace, else beside its other files; None without any."""
    found = (place / "logs" / run_id / "events.jsonl" for place in workspaces(folder))
    return next((path for path in (*found, folder / "events.jsonl") if path.is_file()), None)


def evaluation_path(folder: Path, run_id: str) -> Path | None:
    """What the evaluation of a run was told and found; None where nothing says."""
    found = (place / "data" / "evaluation" / f"{run_id}.json" for place in workspaces(folder))
    return next((path for path in found if path.is_file()), None)


class Delivered:
    """The files that a run left, by path below one folder."""

    __slots__ = ("files", "place")

    def __init__(self, place: Path, files: dict[str, Path]) -> None:
        self.place = place
        self.files = files

    def read(self) -> dict[str, bytes]:
        """What is in them."""
        return {path: file.read_bytes() for path, file in self.files.items()}


def deliverable(folder: Path, run_id: str) -> Delivered | None:
    """What a run left; None where it left nothing.

    In FINAL beside its files, in its workspace's output/FINAL, in its own part of output/, or loose
    in output/: the first that holds a file. What several runs share is nobody's.
    """
    for place, loose in _places(folder, run_id):
        files = files_below(place, loose=loose)
        if files:
            return Delivered(place, files)
    return None


def _places(folder: Path, run_id: str) -> Iterator[tuple[Path, bool]]:
    yield folder / FINAL, False
    whole = folder.resolve()
    above = _holders(whole)
    alone = not above or _runs_in(whole.parent) == 1
    outputs = [place / "output" for place in (whole, *above)]
    for output in outputs:
        if alone or output.parent == whole:
            yield output / FINAL, False
        yield output / run_id, False
    for output in outputs:
        if alone or output.parent == whole:
            yield output, True


def _holders(run: Path) -> list[Path]:
    """The workspace that holds `runs/<id>`, and its root: further up, files are somebody else's.

    One of ours has all of its files in its own folder.
    """
    if (run / JOURNAL).exists() or run.parent.name != "runs":
        return []
    workspace = run.parent.parent
    return [workspace, workspace.parent] if workspace.name == "workspace" else [workspace]


def _runs_in(folder: Path) -> int:
    return sum(1 for one in folder.iterdir() if one.is_dir() and not one.name.startswith("."))


def files_below(folder: Path, *, loose: bool = False) -> dict[str, Path]:
    """Plain files below a folder, by path; links are not followed.

    Of an output folder that several runs share, only what belongs to none of them is `loose`.
    """
    found: dict[str, Path] = {}
    if not folder.is_dir() or folder.is_symlink():
        return found
    for path in sorted(folder.rglob("*")):
        inner = path.relative_to(folder)
        if path.is_symlink() or not path.is_file():
            continue
        if loose and len(inner.parts) > 1 and (inner.parts[0] == FINAL or _is_run(inner.parts[0])):
            continue
        if any((folder / one).is_symlink() for one in list(inner.parents)[:-1]):
            continue
        found[inner.as_posix()] = path
    return found


def _is_run(name: str) -> bool:
    """Whether a name is that of a run: a date, a time and eight digits of a hash."""
    parts = name.replace("T", "_").split("_")
    return len(parts) >= 3 and parts[0][:4].isdigit() and len(parts[-1]) == 8
