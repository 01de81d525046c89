"""Adoption of a run's best into the source: checks, atomic file changes, git commit.

This is the only place that changes existing source files. A source that differs from the run's
start is refused. Several files change as one: all or none. New contents are written and synced
beside the old ones first, then one rename a file follows. A failed rename undoes the earlier
ones.

The commit contains only adopted files, and its message sums up the run.
"""

import glob
import os
import stat
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from kept.core.edit import changed_paths
from kept.core.plan import SKILL, SUITE
from kept.core.text import one_line
from kept.errors import SetupError
from kept.results.summary import summary
from kept.spec.paths import git
from kept.store.candidate_files import link_in
from kept.store.reader import Run
from kept.ui.report.format import cases_words, change, verdict_counts
from kept.ui.report.markdown import caveats


class Repository:
    """The repository that a folder is in."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def check(self, paths: Sequence[str]) -> None:
        """Refuse where a commit would hold more than the adoption."""
        try:
            self._git("rev-parse", "--is-inside-work-tree")
        except SetupError as error:
            hint = "adopt without --commit, or make it a repository and commit the source first"
            raise SetupError(f"{self._folder} cannot be committed: {error}", hint=hint) from error
        staged = self._git("diff", "--cached", "--name-only").splitlines()
        if staged:
            raise SetupError(
                f"other changes are staged: {', '.join(staged[:5])}",
                hint="commit or unstage them first, or adopt without --commit",
            )
        dirty = self._git("status", "--porcelain", "--ignored", "--", *paths).splitlines()
        if dirty:
            names = ", ".join(line[3:] for line in dirty[:5])
            raise SetupError(
                f"what the run started from is not committed: {names}",
                hint="commit it first, so that the commit holds the adoption alone",
            )

    def commit(self, paths: Sequence[str], message: str) -> str:
        """Commit these files; the commit's short id. Raises `SetupError` and stages nothing."""
        try:
            self._git("add", "--", *paths)
            self._git("commit", "--quiet", "--message", message, "--only", "--", *paths)
        except SetupError:
            self._git("reset", "--quiet", "--", *paths)
            raise
        return self._git("rev-parse", "--short", "HEAD").strip()

    def _git(self, *words: str) -> str:
        return git(self._folder, *words).decode(errors="replace")


def replace_all(files: Mapping[Path, bytes]) -> None:
    """Give files new contents; raises `SetupError` with everything as it was when it cannot."""
    # through links: the file is to change, not the link to it
    meant = {path.resolve(): data for path, data in files.items()}
    fresh: dict[Path, Path] = {}
    old: dict[Path, Path] = {}
    try:
        for path, data in meant.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            # what an adoption that was killed left beside it
            for left in path.parent.glob(f".{glob.escape(path.name)}.????????.kept"):
                left.unlink(missing_ok=True)
            fresh[path] = _beside(path, data)
            if path.exists():
                old[path] = _beside(path, path.read_bytes())
        _rename_all(fresh, old)
    except OSError as error:
        message = f"cannot change {error.filename}: {error.strerror}"
        raise SetupError(f"{message}; nothing was changed") from error
    finally:
        for left in (*fresh.values(), *old.values()):
            left.unlink(missing_ok=True)


def _rename_all(fresh: Mapping[Path, Path], old: Mapping[Path, Path]) -> None:
    done: list[Path] = []
    try:
        for path, new in fresh.items():
            new.replace(path)
            done.append(path)
    except OSError:
        for path in done:
            if path in old:
                old[path].replace(path)
            else:
                path.unlink()
        raise
    for folder in {path.parent for path in fresh}:
        fd = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _beside(path: Path, data: bytes) -> Path:
    """A file with this content in the same folder, with the mode and owner of the one there."""
    fd, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".kept", dir=path.parent)
    with os.fdopen(fd, "wb") as file:
        if path.exists():
            there = path.stat()
            with suppress(PermissionError):
                os.fchown(fd, there.st_uid, there.st_gid)
            os.fchmod(fd, stat.S_IMODE(there.st_mode))
        else:
            os.fchmod(fd, 0o644)
        file.write(data)
        file.flush()
        os.fsync(fd)
    return Path(name)


@dataclass(frozen=True, slots=True)
class Adoption:
    """Files to change in a folder, with their present and new content."""

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


_BEST = "the files of its best are in {best}"
_NO_SPEC = ("was not started from a spec, so it has no source to change", _BEST)
NO_SOURCE = {
    SUITE: (
        "improves prompt artifacts, and what it kept is used already",
        "`kept agent artifacts list` says which versions are; `activate` chooses another",
    ),
    SKILL: ("trained a skill without `env.skill_init`, so there is no file to change", _BEST),
}
"""Reason why a run has no source to adopt to, and a hint, by recipe."""


def adoption_of(run: Run) -> Adoption:
    """Changes that adopting a run's best would make to its source."""
    source = run.settings.spec.source
    if not source:
        why, hint = NO_SOURCE.get(run.recipe or "", _NO_SPEC)
        raise SetupError(f"run {run.id} {why}", hint=hint.format(best=run.folder / "best"))
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
    # names of artifacts in their source, where a run has others for them
    names = run.settings.spec.names
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


def _is_copied(run: Run, folder: Path) -> bool:
    """True if the same files also lie beside these runs, and would be meant but not changed."""
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


__all__ = ["Adoption", "Repository", "adoption_of"]


SUBJECT_WIDTH = 72


def commit_message(run: Run) -> str:
    """The gain as the subject; how it was found, measured and decided below."""
    told = summary(run)
    name = run.settings.spec.id
    about = f" of {name}" if name else ""
    kept = [f"* step {row.step}, {row.proposer}: {row.reason}" for row in told.steps if row.kept]
    lines = [
        one_line(f"Improve {told.metric}{about}: {change(told)}", SUBJECT_WIDTH),
        "",
        *kept,
        "",
        f"Run {told.run} of kept {told.version}, gate {told.gate}: {verdict_counts(told)}.",
        f"Cases: {cases_words(told)}.",
        f"Candidate {told.seed} → {told.best}.",
        "",
        *(f"Note: {line}" for line in caveats(told, run)),
    ]
    return "\n".join(lines) + "\n"
