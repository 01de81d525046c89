"""The environment of an instance: its repository at the base commit, and a venv from its pins.

Both are made once, in the user's cache folder, and used read-only by all later runs:

    output/        the repository, with what installing it left there
    venv/          its packages, byte-compiled
    built.json     written last: what was made, and packages that could not be installed

Installing runs code of the repository, so it happens in the sandbox. There the repository always
has the path that it has when it is worked on, for an editable install names that path.
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
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from shlex import join, quote

from kept.core.rollout import Failure
from kept.envs.swebench.instances import Instance
from kept.errors import SetupError
from kept.git import git
from kept.sandbox import Command, Exit, Limits, Network, View, execute
from kept.sandbox.scratch import remove_tree, scratch_folder
from kept.sandbox.walls import INSIDE, Site
from kept.settings import cache_home

VERSION = 1
"""Of what is built; a higher one has all of it built again."""

REPO = INSIDE / "output"
"""Where a repository lies for everything that runs in the sandbox."""

MOST_ENTRIES = 100_000
"""Files and folders of a repository."""

LIMITS = Limits(entries=MOST_ENTRIES)
BUILT = "built.json"

_FETCH_SECONDS = 600.0
_INSTALL_SECONDS = 1800.0
_POLL_SECONDS = 0.2
_NOT_IN_DIFFS = ("__pycache__/", "*.pyc", ".pytest_cache/", "*.egg-info/")
_INSTALLER_VARIABLES = (
    *("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_CERT", "PIP_TRUSTED_HOST"),
    *("HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"),
)


@dataclass(frozen=True, slots=True)
class Sources:
    """Where repositories, packages and Pythons come from."""

    repos: Path
    """Folder of git repositories, as `owner__name`, `owner/name` or `name`."""
    wheels: Path | None = None
    """Folder of wheels that packages are installed from."""
    pythons: tuple[Path, ...] = ()
    """Further interpreters."""
    network: bool = False
    """Clone missing repositories, and install packages from an index."""
    clone_url: str = "https://github.com/{repo}.git"


@dataclass(frozen=True, slots=True)
class Testbed:
    """The environment of an instance, ready to be copied."""

    folder: Path
    python: Path
    variables: Mapping[str, str]
    """Environment variables of every command in it."""
    lacking: tuple[str, ...] = ()
    """Packages that could not be installed."""

    __test__ = False
    """It is no test, whatever pytest thinks of the name."""

    @property
    def repo(self) -> Path:
        """The repository as it was built."""
        return self.folder / "output"

    def seen(self) -> tuple[Path, ...]:
        """Folders that a command in it needs to see."""
        return (self.folder, self.python.resolve().parents[1])

    def command(self, line: str, seconds: float, network: Network = "loopback") -> Command:
        """A line of the shell, run in the repository."""
        view = View(Path("/"), bare=True, seen=self.seen(), network=network)
        line = f"cd {REPO} && {line}"
        return Command(line, Path("/"), seconds, self.variables, LIMITS, view, most_text=2**24)

    def copy_to(self, folder: Path) -> None:
        """Copy the repository."""
        shutil.copytree(self.repo, folder, symlinks=True)

    def diff_line(self) -> str:
        """A line of the shell that prints what was changed in the repository, as a patch.

        It reads the git folder of the cache: that of the copy was open to whatever ran there.
        """
        own = self.repo / ".git"
        variables = {
            "GIT_DIR": str(own),
            "GIT_WORK_TREE": str(REPO),
            "GIT_INDEX_FILE": "/tmp/kept-index",
            "GIT_OBJECT_DIRECTORY": "/tmp/kept-objects",
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(own / "objects"),
        }
        exports = " ".join(f"{name}={quote(value)}" for name, value in variables.items())
        return (
            f"export {exports} && mkdir -p /tmp/kept-objects && git read-tree HEAD && "
            "git add -A && git diff --cached --no-color --no-ext-diff --no-textconv HEAD"
        )


class Testbeds:
    """Makes environments, each once."""

    __test__ = False

    def __init__(self, sources: Sources, cache: Path | None = None) -> None:
        self._sources = sources
        self._cache = cache or cache_home() / "swebench"

    async def of(self, instance: Instance) -> Testbed | Failure:
        """The environment of an instance; a failure says what is missing for it."""
        try:
            python = find_python(instance.setup.python, self._sources.pythons)
            folder = self._cache / f"{instance.id}-{_key(instance, python)}"
            async with _locked(folder):
                built = _read(folder)
                if built is None:
                    with scratch_folder("swebench") as scratch:
                        # sites lie two folders down: what is above them is hidden from commands
                        site = Site(scratch / "one" / "w")
                        builder = _Builder(instance, self._sources, folder, python, site)
                        built = await builder.build()
        except SetupError as error:
            return Failure("harness", "infrastructure", error.message, error.hint or "")
        except OSError as error:
            message = f"cannot write {error.filename}: {error.strerror}"
            return Failure("limit", "infrastructure", message)
        if isinstance(built, Failure):
            return built
        lacking: list[str] = built["lacking"]
        return Testbed(folder, python, _variables(instance, folder), tuple(lacking))


@dataclass(slots=True)
class _Builder:
    """One environment, being made."""

    instance: Instance
    sources: Sources
    folder: Path
    python: Path
    site: Site
    lacking: list[str] = field(default_factory=list[str])

    @property
    def _repo(self) -> Path:
        return self.site.folder / "output"

    async def build(self) -> dict[str, list[str]] | Failure:
        """Make it in its folder, from nothing."""
        remove_tree(self.folder)
        self.folder.mkdir(parents=True)
        await asyncio.to_thread(self._make_venv)
        self.site.folder.mkdir(parents=True)
        await asyncio.to_thread(self._fetch)
        failure = await self._install()
        if failure is not None:
            return failure
        repo = self.folder / "output"
        await asyncio.to_thread(shutil.copytree, self._repo, repo, symlinks=True)
        built = {"lacking": self.lacking}
        (self.folder / BUILT).write_text(json.dumps(built), encoding="utf-8")
        return built

    def _fetch(self) -> None:
        """The repository with one commit: later ones would give the fix away."""
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
        exclude.write_text("\n".join((*_NOT_IN_DIFFS, "")), encoding="utf-8")

    def _make_venv(self) -> None:
        done = subprocess.run(
            [str(self.python), "-m", "venv", str(self.folder / "venv")],
            capture_output=True,
            text=True,
            timeout=_FETCH_SECONDS,
            check=False,
        )
        if done.returncode:
            said = (done.stderr or done.stdout).strip().splitlines() or ["it said nothing"]
            raise SetupError(f"{self.python} cannot make a virtual environment: {said[-1]}")

    async def _install(self) -> Failure | None:
        """Packages, then the repository; what the install changed becomes part of its commit."""
        setup = self.instance.setup
        if setup.packages:
            failure = await self._packages(setup.packages)
            if failure is not None:
                return failure
        ended = await self._repository("\n".join(("set -e", *setup.install)))
        if isinstance(ended, Failure):
            return ended
        if not ended.ok:
            return self._fault(f"the repository cannot be installed: {ended}", ended)
        who = "git -c user.name=kept -c user.email=kept@localhost"
        ended = await self._run(f"git add -A && {who} commit -q --allow-empty -m installed")
        if isinstance(ended, Failure) or not ended.ok:
            return ended if isinstance(ended, Failure) else self._fault(str(ended), ended)
        # an old package that is not compiled warns while it is imported from a read-only folder
        await self._run(f"python -m compileall -q {quote(str(self.folder / 'venv' / 'lib'))}")
        return None

    async def _repository(self, lines: str) -> Exit | Failure:
        """Install it as its project says; else with what the venv has, which needs no network."""
        if self.sources.network:
            ended = await self._run(lines)
            if isinstance(ended, Failure) or ended.ok:
                return ended
        # pip reads this as `--no-build-isolation`
        return await self._run(lines, {"PIP_NO_BUILD_ISOLATION": "0"})

    async def _packages(self, packages: tuple[str, ...]) -> Failure | None:
        """All at once; where one of them fails, each by itself, for tests may not need that one."""
        words = ["python", "-m", "pip", "install", "-q", "--no-deps"]
        ended = await self._run(join([*words, *packages]))
        if isinstance(ended, Failure):
            return ended
        if ended.ok:
            return None
        for package in packages:
            one = await self._run(join([*words, package]))
            if isinstance(one, Failure):
                return one
            if not one.ok:
                self.lacking.append(package)
        if len(self.lacking) == len(packages):
            hint = "; allow `env.network`, or name a folder of wheels in `env.wheels_dir`"
            return self._fault(f"no package can be installed: {ended}{hint}", ended)
        return None

    async def _run(self, line: str, more: Mapping[str, str] | None = None) -> Exit | Failure:
        """Run a line in the repository, where it may write to the venv."""
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
        return await execute(command, {}, self.site)

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

    def _fault(self, message: str, ended: Exit) -> Failure:
        return Failure("harness", "infrastructure", message, ended.detail())


def find_repo(name: str, sources: Sources) -> Path:
    """The git repository of a project; cloned where it is missing and the network is open."""
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


def _variables(instance: Instance, folder: Path) -> dict[str, str]:
    """What commands in a testbed find in their environment."""
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


def _key(instance: Instance, python: Path) -> str:
    told = [VERSION, instance.repo, instance.base_commit, instance.version, str(python)]
    setup = instance.setup
    told += [list(setup.packages), list(setup.install), dict(setup.variables)]
    text = json.dumps(told, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _read(folder: Path) -> dict[str, list[str]] | None:
    try:
        return json.loads((folder / BUILT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


@asynccontextmanager
async def _locked(folder: Path) -> AsyncGenerator[None]:
    """Hold the lock of a testbed; the kernel releases it when its process ends."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await asyncio.sleep(_POLL_SECONDS)
        yield
