"""Published Docker images of instances, in place of environments that are built here.

The repository is copied out of the image once. Every command then runs in a container of that image
that has a copy of the repository mounted in its place, and no network.
"""

import asyncio
import hashlib
import json
import os
import subprocess
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import join

from kept.core.rollout import Failure
from kept.errors import SetupError
from kept.evaluators.environments.swebench.instances import Instance
from kept.evaluators.environments.swebench.testbed import (
    BUILT,
    NOT_IN_DIFFS,
    Testbed,
    cached_folder,
)
from kept.evaluators.tools.shell import EpisodeWorkspace, ShellSettings
from kept.sandbox.bwrap import INSIDE, Site
from kept.sandbox.command import MAX_TEXT, Command, Exit
from kept.sandbox.execute import execute
from kept.sandbox.workspace import Scratch

ROOT = Path("/testbed")
"""Path of the repository in an image."""

_GIT = INSIDE / "git"
_PROBE_SECONDS = 20.0
_PULL_SECONDS = 3600.0
_PROCESSES = 512
_VARIABLES = ("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "DOCKER_TLS_VERIFY")
_ACTIVATE = "source /opt/miniconda3/bin/activate && conda activate testbed"


def why_no_docker() -> str:
    """Reason why Docker cannot be used; empty if it can."""
    try:
        done = _docker(["version", "--format", "{{.Server.Version}}"], _PROBE_SECONDS)
    except SetupError as error:
        return error.message
    return "" if done.strip() else "Docker did not say which version it is"


def image_of(instance: Instance) -> str:
    """The image that an instance names, or the usual one for its id."""
    usual = f"swebench/sweb.eval.x86_64.{instance.id.lower().replace('__', '_1776_')}:latest"
    return instance.setup.image or usual


@dataclass(frozen=True, slots=True)
class ImageTestbed(Testbed):
    """Testbed whose commands run in containers of a published image."""

    image: str = ""

    def seen(self) -> tuple[Path, ...]:
        """Return no folders: containers see nothing of this machine."""
        return ()

    def diff_line(self) -> str:
        """Line of bash that prints the diff, with the git folder of the container."""
        return self.diff_between(_GIT, ROOT)

    async def run(self, site: Site, line: str, seconds: float) -> Exit | Failure:
        """Run a line of bash in a container with the repository of a site."""
        return await self.in_container(site.folder, line, seconds)

    def workspace(self, scratch: Scratch, settings: ShellSettings) -> EpisodeWorkspace:
        """A workspace whose commands run in containers."""
        return ContainerWorkspace(scratch, settings, self)

    async def in_container(
        self, folder: Path, line: str, seconds: float, most_text: int = 2**24
    ) -> Exit | Failure:
        """Run a line of bash; the container does not outlive it."""
        name = f"kept-{uuid.uuid4().hex}"
        words = ["docker", *self.words(name, folder, line)]
        command = Command(
            join(words), Path("/"), seconds, passed_on=_VARIABLES, most_text=most_text
        )
        try:
            return await execute(command, {})
        finally:
            # ending the client leaves the container; one that is gone already is no trouble
            await asyncio.to_thread(_quietly, ["kill", name])

    def words(self, name: str, folder: Path, line: str) -> list[str]:
        """Arguments of `docker` that run a line of bash in a container."""
        added = folder / "candidate"
        found = ["run", "--rm", "--name", name, "--network", "none"]
        found += ["--pids-limit", str(_PROCESSES), "--security-opt", "no-new-privileges"]
        if os.geteuid() != 0:
            found += ["--user", f"{os.geteuid()}:{os.getegid()}", "--env", "HOME=/tmp"]
        found += ["--volume", f"{folder / 'output'}:{ROOT}"]
        found += ["--volume", f"{self.repo / '.git'}:{_GIT}:ro"]
        found += ["--volume", f"{added}:{INSIDE / 'candidate'}:ro"] if added.is_dir() else []
        for variable, value in self.variables.items():
            found += ["--env", f"{variable}={value}"]
        line = f"{_ACTIVATE} && git config --global --add safe.directory '*' && {line}"
        return [*found, "--workdir", str(ROOT), self.image, "bash", "-c", line]


class ContainerWorkspace(EpisodeWorkspace):
    """A workspace whose commands run in containers of an image."""

    def __init__(self, scratch: Scratch, settings: ShellSettings, testbed: ImageTestbed) -> None:
        super().__init__(scratch, settings)
        self._testbed = testbed

    def check(self) -> None:
        """Do nothing: the container is the sandbox."""

    async def run(
        self, line: str, seconds: float | None = None, most_text: int = MAX_TEXT
    ) -> Exit | Failure:
        """Run a line of bash in a container."""
        limit = self.settings.seconds if seconds is None else seconds
        return await self._testbed.in_container(self.folder.parent, line, limit, most_text)


class ImageTestbeds:
    """Maker of testbeds from published images."""

    async def of(self, instance: Instance) -> Testbed | Failure:
        """The environment of an instance; a failure says what is missing for it."""
        image = image_of(instance)
        name = f"{instance.id}-image-{hashlib.sha256(image.encode()).hexdigest()[:16]}"

        async def build(folder: Path) -> None:
            await asyncio.to_thread(_copy_out, image, folder)

        try:
            folder = await cached_folder("swebench", name, build)
        except SetupError as error:
            return Failure("harness", "infrastructure", error.message, tried=True)
        except OSError as error:
            message = f"cannot write {error.filename}: {error.strerror}"
            return Failure("limit", "infrastructure", message, tried=True)
        return ImageTestbed(folder, Path(), instance.setup.variables, image=image)


def _copy_out(image: str, folder: Path) -> None:
    name = f"kept-{uuid.uuid4().hex}"
    _docker(["create", "--name", name, image], _PULL_SECONDS)
    try:
        _docker(["cp", f"{name}:{ROOT}", str(folder / "output")], _PULL_SECONDS)
    finally:
        _quietly(["rm", "--force", name])
    exclude = folder / "output" / ".git" / "info" / "exclude"
    exclude.parent.mkdir(parents=True, exist_ok=True)
    exclude.write_text("\n".join((*NOT_IN_DIFFS, "")), encoding="utf-8")
    (folder / BUILT).write_text(json.dumps({"lacking": []}), encoding="utf-8")


def _docker(words: Sequence[str], seconds: float) -> str:
    """Run `docker` and return its output; raises `SetupError` with its last error line."""
    try:
        done = subprocess.run(
            ["docker", *words], capture_output=True, text=True, timeout=seconds, check=False
        )
    except FileNotFoundError as error:
        raise SetupError("there is no `docker` command") from error
    except subprocess.TimeoutExpired as error:
        raise SetupError(f"`docker {words[0]}` did not end within {seconds:g} s") from error
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit {done.returncode}"]
        raise SetupError(f"`docker {words[0]}` failed: {lines[-1]}")
    return done.stdout


def _quietly(words: Sequence[str]) -> None:
    try:
        _docker(words, _PROBE_SECONDS)
    except SetupError:
        return
