"""A git commit of what was adopted, and of nothing else."""

from collections.abc import Sequence
from pathlib import Path

from kept.errors import SetupError
from kept.spec.git import git


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
