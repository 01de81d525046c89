"""The files that an adoption changes, and the state that the source is in."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from kept.core.edit import changed_paths
from kept.core.plan import SKILL, SUITE
from kept.errors import SetupError
from kept.store.files import link_in
from kept.store.reader import Run
from kept.ui.write import replace_all


@dataclass(frozen=True, slots=True)
class Adoption:
    """What is to be changed from what to what."""

    folder: Path
    before: Mapping[str, bytes | None]
    """The seed's content by path; None for a file that was not there."""
    after: Mapping[str, bytes]
    drifted: tuple[str, ...]
    """Files that are neither as the run found them nor as it would leave them."""
    pending: tuple[str, ...]
    """Files still to be changed; fewer than all when an adoption was killed half way."""

    def check(self, run: str) -> None:
        """Refuse a source that is not what the run's evidence is about."""
        if self.drifted:
            names = ", ".join(f"`{name}`" for name in self.drifted)
            raise SetupError(
                f"cannot adopt {run}: {names} changed since it started",
                hint="put that back as it was, or run again from what is there now; "
                f"`kept diff {run}` is a patch that can be applied by hand",
            )

    def apply(self) -> None:
        """Change all files or none."""
        files = {self.folder / path: self.after[path] for path in self.pending}
        replace_all(files)

    def undo(self) -> None:
        """Put back what `apply` changed."""
        for path in self.pending:
            if self.before[path] is None:
                (self.folder / path).unlink(missing_ok=True)
        old = {path: self.before[path] for path in self.pending}
        replace_all({self.folder / path: data for path, data in old.items() if data is not None})


def adoption_of(run: Run) -> Adoption:
    """What adopting a run's best would do to its source."""
    source = run.state.fact("source")
    started = run.state.started
    if started is not None and started.recipe == SUITE:
        raise SetupError(
            f"run {run.id} improves prompt artifacts, and what it kept is used already",
            hint="`kept agent artifacts list` says which versions are; `activate` chooses another",
        )
    if not source:
        trained = started is not None and started.recipe == SKILL
        why = (
            "trained a skill without `env.skill_init`, so there is no file to change"
            if trained
            else "was not started from a spec, so it has no source to change"
        )
        raise SetupError(
            f"run {run.id} {why}", hint=f"the files of its best are in {run.folder / 'best'}"
        )
    folder = Path(source)
    if not folder.is_dir():
        raise SetupError(f"the source of run {run.id} is gone: there is no {folder}")
    seed, best = run.seed, run.best
    if _is_copied(run, folder):
        raise SetupError(
            f"run {run.id} was started in {folder}, and its folder was copied since",
            hint=f"`cd {folder}` to adopt it there; here, its best is in {run.folder / 'best'}",
        )
    paths = changed_paths(seed, best)
    names = _names(run)
    changed = tuple(names.get(path, path) for path in paths)
    for path in changed:
        _refuse_link_out(run, folder, path)
    texts = {names.get(path, path): text for path, text in seed.texts.items()}
    before = {path: _bytes(texts.get(path)) for path in {*texts, *changed}}
    after = {names.get(path, path): _bytes(best[path]) or b"" for path in paths}
    now = {path: _read(folder / path) for path in before}
    allowed = {path: (before[path], after.get(path, before[path])) for path in before}
    drifted = tuple(sorted(path for path, data in now.items() if data not in allowed[path]))
    return Adoption(folder, before, after, drifted, tuple(p for p in changed if now[p] != after[p]))


def _refuse_link_out(run: Run, folder: Path, path: str) -> None:
    """Refuse a file that was replaced by a link to outside of the source since the run began."""
    link = link_in(folder / path, folder)
    if link is not None and not (folder / path).resolve().is_relative_to(folder.resolve()):
        raise SetupError(
            f"cannot adopt {run.id}: `{link.relative_to(folder)}` is a link that leaves {folder}",
            hint="put the file in its place; the best is in " + str(run.folder / "best"),
        )


def _names(run: Run) -> Mapping[str, str]:
    """What an artifact is called in its source, where a run has another name for it."""
    return cast("Mapping[str, str]", run.fact("names") or {})


def _is_copied(run: Run, folder: Path) -> bool:
    """Whether runs lie beside the same files elsewhere: those would be meant, and not changed."""
    here = run.folder.resolve().parents[2]
    if folder.resolve().is_relative_to(here):
        return False
    return any((here / path).exists() for path in run.seed.texts)


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode("utf-8", "surrogateescape")


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SetupError(f"cannot read {path}: {error.strerror}") from error
