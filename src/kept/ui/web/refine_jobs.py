"""Refinement processes started from a page, and the defaults of its forms.

Each is a separate `kept refine`, as in a terminal. It outlives the web server, so closing a
window loses no paid work. Any later `kept view` finds it by the lock of its run and can cancel it
(decision 0065).

Form defaults are the number of iterations, and a pair of models for each tier. They lie in
`view.json` of the home and are read at every use. They have no effect by themselves: the command
line contains all settings.
"""

import fcntl
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
)

from kept.core.schedules.refine import FEWEST, MOST
from kept.models.providers import PROVIDERS, REFERENCE, parse
from kept.orchestrator.refine.proposer import ModelPair
from kept.orchestrator.run_folder.read import read_object
from kept.sandbox.coding_agents.run import CLIS
from kept.settings import artifacts_db, child_environment
from kept.store.candidate_files import make_folder, open_private, write_whole
from kept.store.exports import log
from kept.store.home import Home
from kept.ui.web.auth import Refused
from kept.ui.web.refine_sessions import Refining, Seed, Seeds

NAME = "view.json"
TIERS = ("low", "mid", "high")
_SPELLED = r"^([A-Za-z0-9][A-Za-z0-9_./:@+~-]*[A-Za-z0-9_])?$"
"""Pattern of model names that are safe in a command line, in YAML and in a pair."""


def _known(name: str) -> str:
    """Validate a model name; an empty one is allowed."""
    cli, colon, rest = name.partition(":")
    if name:
        parse(rest if colon and cli in CLIS else name)
    return name


ModelName = Annotated[
    str,
    StringConstraints(strip_whitespace=True, max_length=200, pattern=_SPELLED),
    AfterValidator(_known),
]
Iterations = Annotated[int, Field(strict=True, ge=FEWEST, le=MOST)]


class Pair(BaseModel):
    """Manager and worker models of a tier; an empty name means the seed run's model."""

    model_config = ConfigDict(extra="forbid")

    manager: ModelName | None = None
    worker: ModelName | None = None

    @property
    def names(self) -> ModelPair:
        """The pair in the form that a refinement uses."""
        return ModelPair(self.manager or "", self.worker or "")


class Preferences(BaseModel):
    """Default values of the forms."""

    model_config = ConfigDict(extra="forbid")

    refinement_default_iterations: Iterations = 3
    refinement_tier_low: Pair = Pair()
    refinement_tier_mid: Pair = Pair()
    refinement_tier_high: Pair = Pair()

    @property
    def tiers(self) -> dict[str, ModelPair]:
        """Pairs by tier."""
        return {tier: getattr(self, f"refinement_tier_{tier}").names for tier in TIERS}


class Store:
    """Store of the preferences in the home."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._lock = threading.Lock()

    def read(self) -> Preferences:
        """Read the preferences; an invalid file counts as empty."""
        told = read_object(self._home.path / NAME)
        try:
            return Preferences.model_validate(told or {})
        except ValidationError:
            return Preferences()

    def write(self, chosen: Preferences) -> None:
        """Write the preferences atomically."""
        if self._home.index is None:
            raise Refused(409, "this run lies by itself, and nothing is written beside it")
        text = json.dumps(chosen.model_dump(), indent=2)
        with self._lock:
            self._home.make()
            write_whole(self._home.path / NAME, text.encode() + b"\n")


def problems_in(error: ValidationError) -> list[str]:
    """Validation problems, one line each, with the field names of the form."""
    problems: list[str] = []
    for one in error.errors():
        words = one["msg"].removeprefix("Value error, ")
        if one["msg"].startswith("String should match pattern"):
            words = "that is no name of a model; write provider/model, as in openai/gpt-5-mini"
        problems.append(f"{_place(one['loc'])}: {words}")
    return problems


def _place(loc: tuple[Any, ...]) -> str:
    names = {"refinement_default_iterations": "iterations"}
    parts = [names.get(str(one), str(one).removeprefix("refinement_")) for one in loc]
    return " ".join(part.replace("_", " ") for part in parts) or "the form"


WAIT = 60.0
"""Seconds to wait until a started refinement has a session or has failed."""
LOOK = 0.1
OWN = (
    *("HOME", "XDG_CACHE_HOME", "KEPT_CACHE", "KEPT_MODEL", "KEPT_ARTIFACTS", "KEPT_READABLE"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
    *("AZURE_OPENAI_API_VERSION", "AZURE_CLIENT_ID", "AZURE_TENANT_ID", "AZURE_CLIENT_SECRET"),
)
"""Variables that Kept itself reads, besides the keys and addresses of providers."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Settings of a requested refinement."""

    iterations: int
    pair: ModelPair = ModelPair()  # noqa: RUF009 # a tuple of two texts
    tiers: dict[str, ModelPair] | None = None
    start: str = "best"
    """Starting point of the iterations, as in `kept refine --from`."""


@dataclass(slots=True)
class Started:
    """A child process that was started here."""

    process: "subprocess.Popen[bytes]"
    out: IO[bytes]
    err: IO[bytes]
    session: str | None = None
    said: str = field(default="")

    @property
    def going(self) -> bool:
        """True if the process is running; also reaps it after its end."""
        return self.process.poll() is None


class Refiner:
    """Starts, finds and cancels refinements."""

    def __init__(self, seeds: Seeds) -> None:
        self._seeds = seeds
        self._started: dict[Path, Started] = {}

    def running(self, seed: Seed) -> Refining | Started | None:
        """Refinement of a run that is in progress, from this or any other process."""
        for one in self._seeds.refinements(seed):
            if one.pid is not None:
                return one
        mine = self._started.get(seed.folder)
        # once it has a session, its lock shows if it is running
        return mine if mine is not None and mine.session is None and mine.going else None

    def start(self, seed: Seed, wanted: Wanted) -> str | None:
        """Start a refinement; return its session.

        Raises `Refused` if it cannot start or one is running.
        """
        home = self._seeds.runs.home
        obstacle = self._seeds.obstacle(seed)
        if obstacle:
            raise Refused(409, f"run {seed.id} cannot be refined: {obstacle}")
        with _alone(home.path / "refinements", seed.folder):
            if self.running(seed) is not None:
                raise Refused(
                    409,
                    f"a refinement of run {seed.id} goes on already",
                    hint="wait until it has ended, or cancel it",
                )
            started = self._started[seed.folder] = _spawn(seed, wanted, home.path)
            return self._told(seed, started)

    def cancel(self, seed: Seed) -> bool:
        """Interrupt the refinement of a run, which stays resumable; True if there was one."""
        one = self.running(seed)
        pid = one.process.pid if isinstance(one, Started) else one.pid if one else None
        if not pid:
            return False
        try:
            os.kill(pid, signal.SIGINT)
        except ProcessLookupError:
            return False
        except PermissionError as error:
            raise Refused(409, f"process {pid} is somebody else's") from error
        return True

    def trouble(self, seed: Seed) -> str:
        """Error output of the last refinement started here; empty if there is none."""
        mine = self._started.get(seed.folder)
        return mine.said if mine is not None and not mine.going else ""

    def _told(self, seed: Seed, started: Started) -> str | None:
        """Wait for the session: from the lock that the process holds, or from its final output."""
        until = time.monotonic() + WAIT
        while time.monotonic() < until:
            for one in self._seeds.refinements(seed):
                if one.pid == started.process.pid:
                    started.session = one.session
                    return one.session
            if not started.going:
                return _ended(seed, started)
            time.sleep(LOOK)
        return None


@contextmanager
def _alone(place: Path, folder: Path) -> Generator[None]:
    """Hold a file lock so that no other process starts a refinement of the same run."""
    make_folder(place)
    name = hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]
    with open(place / f".{name}.lock", "ab", opener=open_private) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _ended(seed: Seed, started: Started) -> str | None:
    """Session of a process that has ended; raises `Refused` if the refinement never began."""
    texts: list[str] = []
    for file in (started.out, started.err):
        file.seek(0)
        texts.append(file.read(100_000).decode("utf-8", "replace"))
    out, err = texts
    try:
        told: dict[str, Any] = json.loads(out)
        started.session = Path(told["session"]).stem
    except (ValueError, KeyError, TypeError):
        started.said = err.strip() or f"`kept refine` ended with {started.process.returncode}"
        log.warning("a refinement of %s did not begin: %s", seed.id, started.said)
        message, _, hint = started.said.removeprefix("error: ").partition("\n\nhint: ")
        raise Refused(409, message, hint=hint or None) from None
    return started.session


def _spawn(seed: Seed, wanted: Wanted, home: Path) -> Started:
    out, err = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115 # as long as it
    asking = seed.asking
    folder = Path(asking.folder) if asking.folder and Path(asking.folder).is_dir() else home.parent
    process = subprocess.Popen(
        command(seed, wanted),
        cwd=folder,
        env=environment(seed, home),
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=err,
        # an interrupt of the web server must not reach the child
        start_new_session=True,
    )
    return Started(process, out, err)


def command(seed: Seed, wanted: Wanted) -> list[str]:
    """Command line; every value is joined to its option, so that none is read as an option."""
    # -P: a project may hold files named like modules
    words = [sys.executable, "-P", "-m", "kept", "refine", str(seed.folder), "--json", "-q"]
    words.append(f"--iterations={wanted.iterations}")
    words.append(f"--from={wanted.start}")
    if wanted.tiers is not None:
        for tier, pair in wanted.tiers.items():
            if any(pair):
                words.append(f"--tier-{tier}=manager={pair.manager},worker={pair.worker}")
    else:
        words += [f"--model={wanted.pair.manager}"] if wanted.pair.manager else []
        words += [f"--worker-model={wanted.pair.worker}"] if wanted.pair.worker else []
    if seed.asking.config:
        words.append(f"--config={seed.asking.config}")
    return [*words, *(f"--set={one}" for one in seed.asking.settings)]


def environment(seed: Seed, home: Path) -> dict[str, str]:
    """Environment of the process: the same home and prompts, independent of its folder."""
    registry = artifacts_db()
    named = {"KEPT_ARTIFACTS": str(registry.absolute())} if registry else {}
    return child_environment({"KEPT_HOME": str(home), **named}, variables(seed))


def variables(seed: Seed) -> tuple[str, ...]:
    """Variables that the process may see: Kept's own, the providers', and those in its config."""
    named = {name for one in PROVIDERS.values() for name in (one.key_variable, one.url_variable)}
    texts = [*seed.asking.settings]
    if seed.asking.config:
        path = Path(seed.asking.folder) / seed.asking.config
        texts += [path.read_text(encoding="utf-8", errors="replace")] if path.is_file() else []
    referred = {name for text in texts for name in REFERENCE.findall(text)}
    return (*OWN, *sorted(name for name in named | referred if name))
