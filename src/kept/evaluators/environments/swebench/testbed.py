"""SWE-bench testbeds: cached repository and venv of an instance, and the split.

Both are built once in the user's cache folder, below `envs/`, and used read-only by later runs:

    output/        the repository, with what installing it left there
    venv/          its packages, byte-compiled
    built.json     packages that could not be installed

Installing runs code of the repository, so it happens in the sandbox. There the repository always
has the path of later work, because an editable install names that path.

The split is made within each repository.
"""

import asyncio
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from shlex import join, quote
from typing import Any

from kept.core.artifact import is_safe_path
from kept.core.case import Case, Cases
from kept.core.rollout import Failure
from kept.errors import SetupError
from kept.evaluators.environments.datasets import values
from kept.evaluators.environments.swebench.instances import Instance
from kept.evaluators.tools.shell import EpisodeWorkspace, ShellSettings
from kept.sandbox.bwrap import INSIDE, Site
from kept.sandbox.command import Command, Exit, Limits, Network, View
from kept.sandbox.execute import execute
from kept.sandbox.temp_dirs import remove_tree, scratch_folder
from kept.sandbox.workspace import Scratch
from kept.settings import cache_home
from kept.spec.paths import git

POLL_SECONDS = 0.1
"""Interval between two attempts to take a lock, in seconds."""

COMPLETE = ".complete"
"""Marker file of a folder that is complete."""


async def cached_folder(env: str, name: str, build: Callable[[Path], Awaitable[None]]) -> Path:
    """Return the cached folder of an environment; build it if it is not there yet.

    Several processes may ask for one folder: one builds it, the others wait. A folder whose
    build was interrupted or failed is built again.
    """
    if not is_safe_path(name):
        raise ValueError(f"`{name}` is no name of a folder")
    folder = cache_home() / "envs" / env / name
    if (folder / COMPLETE).exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    async with _locked(folder.with_name(f"{folder.name}.lock")):
        if not (folder / COMPLETE).exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            await build(folder)
            (folder / COMPLETE).touch()
    return folder


@asynccontextmanager
async def _locked(path: Path) -> AsyncGenerator[None]:
    """Hold a file lock; waiting polls and takes no thread, as the builder may need them all."""
    with path.open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await asyncio.sleep(POLL_SECONDS)
        yield


def split_by_repo(cases: Sequence[Case], ratio: Sequence[int], seed: int) -> Cases:
    """Share the cases of each repository among train, selection and test by ratio.

    A repository with three cases or more has one in each part that the ratio includes. Of two
    cases one is for training, and a single one is for the test.
    """
    chance = Random(seed)
    groups: dict[str, list[Case]] = {}
    for case in cases:
        groups.setdefault(str(values(case)["repo"]), []).append(case)
    parts: tuple[list[Case], list[Case], list[Case]] = ([], [], [])
    for _, group in sorted(groups.items()):
        group = sorted(group, key=lambda case: case.id)
        chance.shuffle(group)
        train, selection = _counts(len(group), ratio)
        parts[0].extend(group[:train])
        parts[1].extend(group[train : train + selection])
        parts[2].extend(group[train + selection :])
    for part in parts:
        Random(seed + 1).shuffle(part)
    return Cases(*(tuple(part) for part in parts))


def _counts(size: int, ratio: Sequence[int]) -> tuple[int, int]:
    """Cases of a repository for training and for selection."""
    if size == 1:
        return (0, 0) if ratio[2] else (1, 0)
    if size == 2:
        return (1, 0) if ratio[2] else (1, 1)
    total = sum(ratio)
    train, selection = (round(size * part / total) for part in ratio[:2])
    train, selection = max(train, 1), max(selection, 1)
    if not ratio[2]:
        return size - selection, selection
    # leave at least one case for the test part
    while train + selection >= size:
        train, selection = (train - 1, selection) if train > selection else (train, selection - 1)
    return train, selection


VERSION = 1
"""Version of the build; a new version rebuilds every testbed."""

REPO = INSIDE / "output"
"""Path of the repository in the sandbox."""

MOST_ENTRIES = 100_000
"""Maximum number of files and folders of a repository."""

LIMITS = Limits(entries=MOST_ENTRIES)
BUILT = "built.json"

_FETCH_SECONDS = 600.0
_INSTALL_SECONDS = 1800.0
NOT_IN_DIFFS = ("__pycache__/", "*.pyc", ".pytest_cache/", "*.egg-info/")
_INSTALLER_VARIABLES = (
    *("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_CERT", "PIP_TRUSTED_HOST"),
    *("HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"),
)


@dataclass(frozen=True, slots=True)
class Sources:
    """Sources of repositories, packages and Pythons."""

    repos: Path
    """Folder of git repositories, as `owner__name`, `owner/name` or `name`."""
    wheels: Path | None = None
    """Folder of wheels that packages are installed from."""
    pythons: tuple[Path, ...] = ()
    """Further interpreters."""
    network: bool = False
    """Clone missing repositories, and install packages from an index."""
    clone_url: str = "https://github.com/{repo}.git"

    def offer(self) -> str:
        """Hash of the places that packages may come from."""
        wheels = sorted(one.name for one in self.wheels.glob("*")) if self.wheels else []
        told = json.dumps([self.network, wheels])
        return hashlib.sha256(told.encode("utf-8", "surrogateescape")).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Testbed:
    """The environment of an instance, ready to be copied."""

    folder: Path
    python: Path
    variables: Mapping[str, str]
    """Environment variables of every command in it."""
    lacking: tuple[str, ...] = ()
    """Packages that could not be installed."""
    hidden: tuple[Path, ...] = ()
    """Paths that no command may read: the data holds the gold patches."""

    __test__ = False
    """Keeps pytest from collecting the class as a test."""

    @property
    def repo(self) -> Path:
        """The repository as it was built."""
        return self.folder / "output"

    def seen(self) -> tuple[Path, ...]:
        """Folders that a command in it needs to see."""
        return (self.folder, self.python.resolve().parents[1])

    def hiding(self, places: Iterable[Path]) -> "Testbed":
        """Copy in which commands cannot read these places, except for what they need."""
        needed = [one.resolve() for one in self.seen()]
        found = [part for one in places for part in _all_but(one.resolve(), needed)]
        return replace(self, hidden=tuple(dict.fromkeys(found)))

    def command(self, line: str, seconds: float, network: Network = "loopback") -> Command:
        """A line of the shell, run in the repository."""
        view = View(Path("/"), bare=True, hidden=self.hidden, seen=self.seen(), network=network)
        line = f"cd {REPO} && {line}"
        return Command(line, Path("/"), seconds, self.variables, LIMITS, view, most_text=2**24)

    async def run(self, site: Site, line: str, seconds: float) -> Exit | Failure:
        """Run a line of the shell in a copy of the repository, the `output` of a site."""
        return await execute(self.command(line, seconds), {}, site)

    def workspace(self, scratch: Scratch, settings: ShellSettings) -> EpisodeWorkspace:
        """A workspace for a student, to be opened with `repo`."""
        return EpisodeWorkspace(scratch, settings)

    def diff_line(self) -> str:
        """A line of bash that prints what was changed in a copy, as a patch in base64.

        A file may be in any encoding, and a patch of it has its bytes.
        """
        return self.diff_between(self.repo / ".git", REPO)

    @staticmethod
    def diff_between(own: Path, root: Path) -> str:
        """A line that compares a folder with the commit of a git folder that is not in it.

        The git folder in the copy is not trusted: programs that ran there may have changed it.
        """
        variables = {
            "GIT_DIR": str(own),
            "GIT_WORK_TREE": str(root),
            # index and new objects go to /tmp: the git folder is read-only
            "GIT_INDEX_FILE": "/tmp/kept-index",
            "GIT_OBJECT_DIRECTORY": "/tmp/kept-objects",
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(own / "objects"),
        }
        exports = " ".join(f"{name}={quote(value)}" for name, value in variables.items())
        return (
            f"set -o pipefail; export {exports} && mkdir -p /tmp/kept-objects && "
            "git read-tree HEAD && git add -A && "
            "git diff --cached --no-color --no-ext-diff --no-textconv HEAD | base64 -w 0"
        )


class Testbeds:
    """Maker of testbeds, each built once for all runs of this user."""

    __test__ = False

    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    async def of(self, instance: Instance) -> Testbed | Failure:
        """The environment of an instance; a failure says what is missing for it."""
        try:
            python = await asyncio.to_thread(
                find_python, instance.setup.python, self._sources.pythons
            )
            # instances of one commit share it
            told = [VERSION, instance.repo, instance.base_commit, instance.version, str(python)]
            setup = instance.setup
            told += [list(setup.packages), list(setup.install), dict(setup.variables)]
            key = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]
            name = f"{instance.repo.replace('/', '__')}-{key}"

            async def build(folder: Path) -> None:
                with scratch_folder("swebench") as scratch:
                    # sites lie two folders down: what is above them is hidden from commands
                    site = Site(scratch / "one" / "w")
                    await _Builder(instance, self._sources, folder, python, site).build()

            folder, built = await _cached(name, build)
            if built["lacking"] and built.get("sources") != self._sources.offer():
                # what could not be installed then may be there now
                folder, built = await _cached(f"{name}-{self._sources.offer()}", build)
        except SetupError as error:
            hint = f"; hint: {error.hint}" if error.hint else ""
            return Failure("harness", "infrastructure", f"{error.message}{hint}", tried=True)
        except OSError as error:
            message = f"cannot write {error.filename}: {error.strerror}"
            return Failure("limit", "infrastructure", message, tried=True)
        variables = _variables(instance, folder)
        return Testbed(folder, python, variables, tuple(built["lacking"]))


async def _cached(
    name: str, build: Callable[[Path], Awaitable[None]]
) -> tuple[Path, Mapping[str, Any]]:
    """The folder of an environment, and what is known of how it was built."""
    folder = await cached_folder("swebench", name, build)
    return folder, json.loads((folder / BUILT).read_text(encoding="utf-8"))


@dataclass(slots=True)
class _Builder:
    """Builder of one testbed."""

    instance: Instance
    sources: Sources
    folder: Path
    python: Path
    site: Site
    lacking: list[str] = field(default_factory=list[str])

    @property
    def _repo(self) -> Path:
        return self.site.folder / "output"

    async def build(self) -> None:
        """Build the testbed in its folder; raises `SetupError` if that is not possible."""
        await asyncio.to_thread(self._make_venv)
        self.site.folder.mkdir(parents=True)
        await asyncio.to_thread(self._fetch)
        await self._install()
        repo = self.folder / "output"
        await asyncio.to_thread(shutil.copytree, self._repo, repo, symlinks=True)
        built = {"lacking": self.lacking, "sources": self.sources.offer()}
        (self.folder / BUILT).write_text(json.dumps(built), encoding="utf-8")

    def _fetch(self) -> None:
        """Fetch the repository with one commit only: later ones would give the fix away."""
        repo = self._repo
        source = find_repo(self.instance.repo, self.sources)
        repo.mkdir()
        git(repo, "init", "-q")
        commit = self.instance.base_commit
        git(repo, "fetch", "-q", "--no-tags", "--depth", "1", source.absolute().as_uri(), commit)
        git(repo, "-c", "advice.detachedHead=false", "checkout", "-q", "FETCH_HEAD")
        (repo / ".git" / "FETCH_HEAD").unlink(missing_ok=True)
        exclude = repo / ".git" / "info" / "exclude"
        exclude.parent.mkdir(exist_ok=True)
        exclude.write_text("\n".join((*NOT_IN_DIFFS, "")), encoding="utf-8")

    def _make_venv(self) -> None:
        setup = self.instance.setup
        words = [] if setup.packages or setup.install else ["--without-pip"]
        done = subprocess.run(
            [str(self.python), "-m", "venv", *words, str(self.folder / "venv")],
            capture_output=True,
            text=True,
            timeout=_FETCH_SECONDS,
            check=False,
        )
        if done.returncode:
            said = (done.stderr or done.stdout).strip().splitlines() or ["it said nothing"]
            raise SetupError(f"{self.python} cannot make a virtual environment: {said[-1]}")

    async def _install(self) -> None:
        """Install packages, then the repository, and commit what the install changed."""
        setup = self.instance.setup
        if setup.packages:
            await self._packages(setup.packages)
        ended = await self._repository("\n".join(("set -e", *setup.install)))
        if not ended.ok:
            raise SetupError(f"the repository cannot be installed: {ended}")
        who = "git -c user.name=kept -c user.email=kept@localhost"
        ended = await self._run(f"git add -A && {who} commit -q --allow-empty -m installed")
        if not ended.ok:
            raise SetupError(f"git cannot record what was installed: {ended}")
        # an old package that is not compiled warns while it is imported from a read-only folder
        await self._run(f"python -m compileall -q {quote(str(self.folder / 'venv' / 'lib'))}")

    async def _repository(self, lines: str) -> Exit:
        """Install as the project says; else with the packages of the venv, without network."""
        if self.sources.network:
            ended = await self._run(lines)
            if ended.ok:
                return ended
        # pip reads this as `--no-build-isolation`
        return await self._run(lines, {"PIP_NO_BUILD_ISOLATION": "0"})

    async def _packages(self, packages: tuple[str, ...]) -> None:
        """Install all at once; if that fails, one by one, as tests may not need the failing one."""
        words = ["python", "-m", "pip", "install", "-q", "--no-deps"]
        ended = await self._run(join([*words, *packages]))
        if ended.ok:
            return
        for package in packages:
            if not (await self._run(join([*words, package]))).ok:
                self.lacking.append(package)
        if len(self.lacking) == len(packages):
            hint = "set `env.network: true`, or name a folder of wheels in `env.wheels_dir`"
            raise SetupError(f"none of its packages can be installed: {ended}", hint=hint)

    async def _run(self, line: str, more: Mapping[str, str] | None = None) -> Exit:
        """Run a line in the repository with write access to the venv."""
        sources = self.sources
        bed = Testbed(self.folder, self.python, _variables(self.instance, self.folder))
        command = bed.command(line, _INSTALL_SECONDS, "on" if sources.network else "loopback")
        assert command.view is not None, "a testbed's commands have a view"
        wheels = (sources.wheels,) if sources.wheels is not None else ()
        view = replace(
            command.view,
            writable=(self.folder / "venv",),
            seen=(*bed.seen(), *(one.resolve() for one in wheels)),
        )
        env = {**command.env, **self._installer_variables(), **(more or {})}
        command = replace(command, view=view, env=env, passed_on=_INSTALLER_VARIABLES)
        ended = await execute(command, {}, self.site)
        if isinstance(ended, Failure):
            raise SetupError(ended.message)
        return ended

    def _installer_variables(self) -> dict[str, str]:
        found = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1"}
        if self.instance.setup.packages:
            found["PIP_NO_DEPS"] = "1"
        if not self.sources.network:
            found["PIP_NO_INDEX"] = "1"
        if self.sources.wheels is not None:
            found["PIP_FIND_LINKS"] = str(self.sources.wheels.resolve())
        if re.match(r"\d+(\.\d+)*\Z", self.instance.version):
            # tags are left out with the rest of the history
            found["SETUPTOOLS_SCM_PRETEND_VERSION"] = self.instance.version
        return found


def find_repo(name: str, sources: Sources) -> Path:
    """Git repository of a project; cloned if it is missing and the network is allowed."""
    owner, _, short = name.partition("/")
    for place in (f"{owner}__{short}", name, short):
        for folder in (sources.repos / place, sources.repos / f"{place}.git"):
            if (folder / "HEAD").is_file() or (folder / ".git").exists():
                return folder
    if not sources.network:
        hint = f"clone it to {sources.repos / f'{owner}__{short}'}, or set `env.network: true`"
        raise SetupError(f"there is no repository of {name} in {sources.repos}", hint=hint)
    target = sources.repos / f"{owner}__{short}"
    sources.repos.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}-{os.getpid()}")
    git(sources.repos, "clone", "-q", "--bare", sources.clone_url.format(repo=name), str(part))
    try:
        part.rename(target)
    except OSError:
        # another process was faster
        remove_tree(part)
    return target


def find_python(version: str, more: tuple[Path, ...] = ()) -> Path:
    """An interpreter of a version, as `3.9`; a `SetupError` names what is missing."""
    if not version or version == ".".join(map(str, sys.version_info[:2])):
        return Path(sys.executable)
    home = Path.home()
    named = shutil.which(f"python{version}")
    candidates = [
        *more,
        *((Path(named),) if named else ()),
        *sorted((home / ".pyenv" / "versions").glob(f"{version}*/bin/python"), reverse=True),
        *sorted((home / ".local/share/uv/python").glob(f"cpython-{version}*/bin/python3")),
    ]
    for path in candidates:
        if _version_of(path) == version:
            return path
    hint = "install it, or name it in `env.pythons`"
    raise SetupError(f"there is no Python {version} here", hint=hint)


def _version_of(python: Path) -> str:
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run(
            [str(python), "-c", code], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()


def _all_but(folder: Path, needed: Sequence[Path]) -> Iterator[Path]:
    """Paths that cover a folder except for the needed places."""
    if any(folder.is_relative_to(one) for one in needed):
        return
    if not any(one.is_relative_to(folder) for one in needed):
        yield folder
        return
    for one in sorted(folder.iterdir()):
        yield from _all_but(one, needed)


def _variables(instance: Instance, folder: Path) -> dict[str, str]:
    """Environment variables of commands in a testbed."""
    venv = folder / "venv"
    found = {
        "PATH": os.pathsep.join((str(venv / "bin"), os.defpath, "/usr/local/bin")),
        "VIRTUAL_ENV": str(venv),
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "GIT_CONFIG_NOSYSTEM": "1",
        **instance.setup.variables,
    }
    if not any(re.search(r"(^|\s)(-e|develop)(\s|$)", line) for line in instance.setup.install):
        # a copy in the venv must not hide what was changed in the repository
        found["PYTHONPATH"] = os.pathsep.join((str(REPO / "src"), str(REPO)))
    return found
