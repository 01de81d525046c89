"""Sandbox of a task: files that its commands see.

The runner sees neither the cases nor the files of the scorer, nor any Git history with them. The
scorer sees everything but the runs of Kept and secrets. Artifacts, and files that the runner's own
command names, are never hidden.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from kept.evaluators.runners.registry import RUNNERS
from kept.evaluators.scorers.registry import SCORERS
from kept.recipes.task.spec import TaskSpec
from kept.sandbox.bwrap import env_files
from kept.sandbox.capabilities import Abilities, abilities
from kept.sandbox.coding_agents.definition import Program
from kept.sandbox.command import Command, Limits, View
from kept.settings import is_set, readable_paths
from kept.spec.command_lines import named
from kept.spec.paths import find
from kept.spec.shared_sections import SandboxSpec
from kept.spec.source import Source
from kept.spec.validate import said, section
from kept.store.home import Home


@dataclass(frozen=True, slots=True)
class Confinement:
    """Sandbox of the commands of one task."""

    spec: SandboxSpec
    limits: Limits
    inside: View
    """View of the runner; the scorer sees the same, with less of it hidden."""
    home: Path
    able: Abilities
    secrets: tuple[Path, ...] = ()
    """Files of the tree such as `.env`, which no command may read."""

    def runner(self, command: Command) -> Command:
        """Return the runner's command in the sandbox."""
        return self._held(command, self.inside)

    def scorer(self, command: Command) -> Command:
        """Return the scorer's command in the sandbox."""
        return self._held(command, replace(self.inside, hidden=(self.home, *self.secrets)))

    def agent(self, command: Command, program: Program | None) -> Command:
        """Return an agent's command in the sandbox: with network, without the task's folder.

        If its program is in that folder, the agent sees what the runner sees.
        """
        tree, hidden = self.inside.tree, self.inside.hidden
        if program is None or not program.path.is_relative_to(tree):
            hidden = (*hidden, tree)
        view = replace(
            self.inside,
            bare=True,
            hidden=hidden,
            seen=program.folders if program else (),
            writable=(),
            network="on",
        )
        return self._held(command, view)

    def _held(self, command: Command, view: View) -> Command:
        cwd = command.cwd.resolve()
        return replace(command, cwd=cwd, limits=self.limits, view=view, passed_on=self.spec.env)

    def facts(self) -> Mapping[str, object]:
        """Return the facts of the sandbox for reports."""
        holds = self.able.enforced(walls=self.inside.walls)
        return {
            "walls": "bwrap" if self.inside.walls and self.able.walls else "none",
            "network": self.spec.network,
            "env": list(self.spec.env),
            "hidden": list(self.spec.hidden),
            "readable": list(self.spec.readable),
            "writable": list(self.spec.writable),
            "not_enforced": [what for what, does in holds.items() if not does],
        }

    def warnings(self) -> tuple[str, ...]:
        """Warn of unset variables, and of a missing sandbox that was not switched off."""
        told = [
            f"`sandbox.env` names `{name}`, which is not set here"
            for name in self.spec.env
            if not is_set(name)
        ]
        if self.spec.walls != "off" and not self.able.walls:
            told.append(f"commands are not sandboxed: {self.able.why_not}")
        return tuple(told)


def confine(source: Source, task: TaskSpec, artifacts: Mapping[str, str]) -> Confinement:
    """Build the sandbox of a task's commands; raises `SpecError` with all problems."""
    able = abilities()
    spec = task.sandbox
    tree = source.folder.resolve()
    home = Home.find(source.folder).path.resolve()
    scores, runs = SCORERS.needs(task.scorer), RUNNERS.needs(task.runner)
    scorer = _named(tree, scores.commands, scores.folders)
    unseen = {*scorer, *_listed(source, spec.hidden)}
    if task.cases is not None:
        unseen.add((tree / task.cases.file).resolve())
    if task.cases is not None and task.logging.results_file is not None:
        # the results quote failures, and so the holdout cases
        unseen.add((tree / task.logging.results_file).resolve())
    runner = _named(tree, runs.commands, runs.folders)
    # a path that contains an artifact or a file of the runner stays visible
    kept = {*(tree / name for name in artifacts), *runner}
    hidden = sorted(path for path in unseen if not any(file.is_relative_to(path) for file in kept))
    readable = _paths(source, "readable", spec.readable)
    shown = (*kept, *scorer, *readable, *readable_paths())
    # files that the task names are readable, even if they look like secrets
    secrets = tuple(
        path for path in env_files(tree) if not any(path.is_relative_to(one) for one in shown)
    )
    view = View(
        tree,
        (home, *_histories(tree), *hidden, *secrets),
        _paths(source, "writable", spec.writable),
        readable=readable,
        network=spec.network,
        walls=spec.walls != "off",
    )
    source.check()
    return Confinement(spec, spec.limits(_memory()), view, home, able, secrets)


def check_sandbox(source: Source) -> None:
    """Report a required sandbox that is not available, and named files that do not exist."""
    if said(source, ("sandbox", "walls")) == "required" and not (able := abilities()).walls:
        message = f"they are required, and bwrap does not work here: {able.why_not}"
        hint = "install bubblewrap; `kept doctor` says what works"
        source.report(("sandbox", "walls"), message, hint)
    for key in ("hidden", "readable", "writable"):
        spec = section(source, ("sandbox",), SandboxSpec, SandboxSpec.model_fields.keys() - {key})
        if spec is not None and key == "hidden":
            _listed(source, spec.hidden)
        elif spec is not None:
            _paths(source, key, getattr(spec, key))


def modes(folder: Path, artifacts: Mapping[str, str]) -> dict[str, int]:
    """Return the mode bits of artifacts, which their texts do not have."""
    return {name: (folder / name).stat().st_mode & 0o777 for name in artifacts}


def _listed(source: Source, patterns: Iterable[str]) -> set[Path]:
    """Return the paths that the spec hides; report patterns that are wrong."""
    found: set[Path] = set()
    for number, pattern in enumerate(patterns):
        hits = find(source, ("sandbox", "hidden", number), pattern)
        found.update(hit.resolve() for hit in hits)
    return found


def _paths(source: Source, key: str, paths: Iterable[str]) -> tuple[Path, ...]:
    """Return paths that commands may read or write to; report those that do not exist."""
    found = tuple((source.folder / Path(path).expanduser()).resolve() for path in paths)
    for number, path in enumerate(found):
        if not path.exists():
            hint = "make it first: Kept does not know whether it is to be a file or a folder"
            source.report(("sandbox", key, number), f"there is no `{path}`", hint)
    return found


def _named(tree: Path, lines: Iterable[str], places: Iterable[str]) -> set[Path]:
    """Return the files and folders of a tree that command lines name."""
    bases = {tree, *((tree / place).resolve() for place in places)}
    found = named(bases, lines)
    return {path for path in found if path != tree and path.is_relative_to(tree)}


def _histories(tree: Path) -> tuple[Path, ...]:
    """Return the Git repository of a tree: its history has the files that the tree hides."""
    for folder in (tree, *tree.parents):
        if (folder / ".git").exists():
            return (folder / ".git", *_elsewhere(folder / ".git"))
    return ()


def _elsewhere(git: Path) -> Iterator[Path]:
    """Yield the history folders that the `.git` file of a worktree or submodule refers to."""
    if git.is_dir():
        return
    try:
        own = git.parent / git.read_text().removeprefix("gitdir:").strip()
        yield own.resolve()
        # of a worktree: the repository from which it was made
        yield (own / (own / "commondir").read_text().strip()).resolve()
    except (OSError, UnicodeDecodeError, ValueError):
        # a submodule has no `commondir`
        return


def _memory() -> int | None:
    """Return the machine's memory in bytes; None if it is not known."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None
