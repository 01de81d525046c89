"""Places that are known to hold secrets, which no command may read.

The rest of a home can be read, since programs and their libraries may well lie there. A list can
never be whole; `hidden` of a task's sandbox adds to it, and `readable` takes from it.
"""

import os
import pwd
from collections import deque
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

_PLACES = """
.ssh .gnupg .netrc .password-store .pgpass .my.cnf .local/share/keyrings
.aws .azure .boto .s3cfg .kube .docker .terraform.d .config/gcloud .config/doctl .config/rclone
.git-credentials .config/git/credentials .config/gh .config/hub .config/op
.npmrc .pypirc .cargo/credentials .cargo/credentials.toml .gem/credentials .m2/settings.xml
.gradle/gradle.properties .cache/huggingface/token .huggingface
.anthropic .claude .claude.json .codex .gemini .config/openai
.mozilla .config/google-chrome .config/chromium
.bash_history .zsh_history .python_history
"""
"""Below a home."""

_SYSTEM = ("shadow", "shadow-", "gshadow", "gshadow-", "sudoers", "sudoers.d", "krb5.keytab")
"""Below /etc: root may read them, and so may a command of root's."""

HOMES = Path("/home")

_NOT_SEARCHED = frozenset(
    (
        *("node_modules", "__pycache__", "site-packages", ".git", ".hg", ".svn", ".kept"),
        *(".venv", ".tox", ".nox", ".mypy_cache", ".ruff_cache", ".pytest_cache"),
    )
)
MOST_FOLDERS = 20_000
"""Folders of a project that are searched for `.env` files, those nearest to its root first."""


def secrets(needed: Collection[Path]) -> Iterator[Path]:
    """Places that are there; homes of other users whole, unless something needed lies in them."""
    yield from (path for name in _SYSTEM if (path := Path("/etc", name)).exists())
    yield from Path("/etc/ssh").glob("ssh_host_*_key")
    own = _own_homes()
    for home in (*own, *_other_homes(own)):
        if home in own or any(path.is_relative_to(home) for path in needed):
            yield from _in_home(home)
        else:
            yield home


def env_files(folder: Path) -> Iterator[Path]:
    """Files such as `.env` and `.env.local` of a project and of each folder above it."""
    for above in folder.parents:
        yield from _env_files_in(above)[0]
    folders = deque([folder])
    for _ in range(MOST_FOLDERS):
        if not folders:
            return
        found, inner = _env_files_in(folders.popleft())
        yield from found
        folders += inner


def _env_files_in(folder: Path) -> tuple[list[Path], list[Path]]:
    """The `.env` files of one folder, and the folders in it; a virtual environment is neither."""
    found, inner = list[Path](), list[Path]()
    try:
        with os.scandir(folder) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                is_folder = entry.is_dir(follow_symlinks=False)
                if entry.name.startswith(".env"):
                    if not (is_folder and Path(entry.path, "pyvenv.cfg").exists()):
                        found.append(Path(entry.path))
                elif is_folder and entry.name not in _NOT_SEARCHED:
                    inner.append(Path(entry.path))
    except OSError:
        pass  # what we cannot list, a command cannot either
    return found, inner


def _in_home(home: Path) -> Iterator[Path]:
    yield from (path for place in _PLACES.split() if (path := home / place).exists())
    yield from _env_files_in(home)[0]


def _own_homes() -> tuple[Path, ...]:
    """The home that HOME names, and the one that the system knows."""
    found = [Path.home()]
    with suppress(KeyError):  # a container may run as a user that it does not know
        found.append(Path(pwd.getpwuid(os.geteuid()).pw_dir))
    return tuple(dict.fromkeys(home for home in found if home.is_dir() and home.name))


def _other_homes(own: Collection[Path]) -> Iterator[Path]:
    try:
        found = [*sorted(HOMES.iterdir()), Path("/root")]
    except OSError:
        found = [Path("/root")]
    return (home for home in found if home not in own and _may_list(home))


def _may_list(home: Path) -> bool:
    """Those that we cannot read ourselves need not be hidden."""
    return home.is_dir() and os.access(home, os.R_OK | os.X_OK)
