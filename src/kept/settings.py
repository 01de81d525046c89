"""The only reader of the process environment."""

import os
from collections.abc import Mapping
from pathlib import Path

PASSED_ON = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "SYSTEMROOT", "VIRTUAL_ENV")
"""Variables that a child process may see; everything else stays with us."""


def kept_home() -> Path | None:
    """The folder that `KEPT_HOME` names, if it does."""
    value = os.environ.get("KEPT_HOME")
    return Path(value).expanduser() if value else None


def child_environment(extra: Mapping[str, str]) -> dict[str, str]:
    """What a command is started with: the few harmless variables, and those it is given."""
    passed = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    return {**passed, **extra}
