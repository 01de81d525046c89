"""From what a task says to what its commands see.

The runner sees neither the cases nor what the scorer is made of, nor any history that holds them.
The scorer sees everything but the runs of Kept. Files that the runner's own command names, and
artifacts, are never hidden.
"""

import os
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from kept.errors import SetupError
from kept.recipes.scorers import named_in
from kept.sandbox import Abilities, Command, Limits, View, abilities
from kept.spec.files import find
from kept.spec.sandbox import SandboxSpec
from kept.spec.source import Source
from kept.spec.task import TaskSpec
from kept.store.home import Home


@dataclass(frozen=True, slots=True)
class Confinement:
    """How the commands of one task are held."""

    spec: SandboxSpec
    limits: Limits
    inside: View
    """What the runner sees; the scorer sees the same, with less of it hidden."""
    home: Path
    able: Abilities

    def runner(self, command: Command) -> Command:
        """The runner's command, held."""
        return self._held(command, self.inside)

    def scorer(self, command: Command) -> Command:
        """The scorer's command, held."""
        return self._held(command, replace(self.inside, hidden=(self.home,)))

    def _held(self, command: Command, view: View) -> Command:
        cwd = command.cwd.resolve()
        return replace(command, cwd=cwd, limits=self.limits, view=view, passed_on=self.spec.env)

    def facts(self) -> Mapping[str, object]:
        """What a reader of the run wants to know about it."""
        holds = self.able.enforced(walls=self.inside.walls)
        return {
            "walls": "bwrap" if self.inside.walls and self.able.walls else "none",
            "network": self.spec.network,
            "not_enforced": [what for what, does in holds.items() if not does],
        }

    def warnings(self) -> tuple[str, ...]:
        """What does not hold although nobody said that it need not."""
        if self.spec.walls == "off" or self.able.walls:
            return ()
        return (f"commands run without walls round them: {self.able.why_not}",)


def confine(source: Source, task: TaskSpec, artifacts: Mapping[str, str]) -> Confinement:
    """How the commands of a task are to be held; raises `SetupError` where they cannot be so."""
    able = abilities()
    spec = task.sandbox
    if spec.walls == "required" and not able.walls:
        raise SetupError(
            f"`sandbox.walls` is required, and bwrap does not work here: {able.why_not}",
            hint="install bubblewrap; `kept doctor` says what works",
        )
    tree = source.folder.resolve()
    home = Home.find(source.folder).path.resolve()
    scorer = _named(tree, named_in(task.scorer), _cwds(task.scorer.model_dump()))
    named = {*scorer, *_listed(source, spec.hidden)}
    if task.cases is not None:
        named.add((tree / task.cases.file).resolve())
    runner = _named(tree, (task.runner.command,), (task.runner.cwd,))
    kept = {*(tree / name for name in artifacts), *runner}
    hidden = sorted(path for path in named if not any(file.is_relative_to(path) for file in kept))
    view = View(
        tree,
        (home, *_histories(tree), *hidden),
        _writable(source, spec.writable),
        (source.path.resolve(), *(path for path in hidden if path.is_file()), *sorted(kept)),
        spec.network,
        walls=spec.walls != "off",
    )
    source.check()
    return Confinement(spec, spec.limits(_memory()), view, home, able)


def modes(folder: Path, artifacts: Mapping[str, str]) -> dict[str, int]:
    """The mode bits of artifacts, which their texts do not have."""
    return {name: (folder / name).stat().st_mode & 0o777 for name in artifacts}


def _listed(source: Source, patterns: Iterable[str]) -> set[Path]:
    """What the spec says is hidden; raises what is wrong with that."""
    found: set[Path] = set()
    for number, pattern in enumerate(patterns):
        hits = find(source, ("sandbox", "hidden", number), pattern)
        found.update(hit.resolve() for hit in hits)
    return found


def _writable(source: Source, paths: Iterable[str]) -> tuple[Path, ...]:
    found = tuple((source.folder / path).resolve() for path in paths)
    for number, path in enumerate(found):
        if not path.exists():
            hint = "make it first: Kept does not know whether it is to be a file or a folder"
            source.report(("sandbox", "writable", number), f"there is no `{path}`", hint)
    return found


def _named(tree: Path, lines: Iterable[str], cwds: Iterable[str]) -> set[Path]:
    """The files and folders of a tree that are words of command lines."""
    bases = {tree, *((tree / cwd).resolve() for cwd in cwds)}
    found = (path for line in lines for word in _words(line) for path in _meant(bases, word))
    return {path for path in found if path != tree and path.is_relative_to(tree)}


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError:
        return line.split()


def _meant(bases: Iterable[Path], word: str) -> Iterator[Path]:
    """The file that a word of a command is, or the module that `package.module:name` is in."""
    module = word.partition(":")[0].replace(".", "/")
    for path in (base / name for base in bases for name in (word, f"{module}.py")):
        try:
            if path.exists():
                yield path.resolve()
        except (OSError, ValueError):
            # a whole script may stand where a file name could
            continue


def _cwds(said: object) -> Iterator[str]:
    """The folders that commands are run in, wherever in a part of a spec they stand."""
    if isinstance(said, dict):
        for key, value in cast("dict[str, object]", said).items():
            yield from (str(value),) if key == "cwd" else _cwds(value)
    elif isinstance(said, list | tuple):
        for value in cast("Iterable[object]", said):
            yield from _cwds(value)


def _histories(tree: Path) -> tuple[Path, ...]:
    """The repository that a tree is in: its history holds whatever is hidden in the tree."""
    for folder in (tree, *tree.parents):
        if (folder / ".git").exists():
            return (folder / ".git",)
    return ()


def _memory() -> int | None:
    """Bytes that the machine has."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None
