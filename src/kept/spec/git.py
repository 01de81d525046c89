"""Asking git: a command of its own for every question, and nothing in the work tree is touched."""

import subprocess
from pathlib import Path

from kept.errors import SetupError


def git(folder: Path, *words: str) -> bytes:
    """What git prints about the repository that a folder is in; raises what it complains of."""
    # literal: a file may be named as a pattern of others is
    command = ["git", "--literal-pathspecs", "-C", str(folder), *words]
    try:
        done = subprocess.run(command, capture_output=True, check=False)
    except FileNotFoundError as error:
        raise SetupError("there is no `git` command") from error
    if done.returncode:
        said = (done.stderr or done.stdout).decode(errors="replace").strip()
        raise SetupError(f"`git {words[0]}` failed: {said or f'exit {done.returncode}'}")
    return done.stdout
