"""One golden run: its folder, the commands that are run in it, and all that they left behind."""

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kept.testing.server import ModelServer

ROOT = Path(__file__).parent.parent.parent
PATH_LENGTH = 72
"""Characters of the path of a golden run's folder. The journal holds absolute paths and the offset
of each line, so offsets are equal in all runs only if paths have one length."""
NAME = "golden"
"""Of that folder."""
PASSED_ON = ("PATH", "LANG", "LC_ALL", "PYTHONHASHSEED")
"""Variables of the environment that a command sees; all others are set here or missing."""


@dataclass(frozen=True)
class Called:
    """One command and its answer."""

    words: tuple[str, ...]
    code: int
    out: str
    err: str


class FrozenKept:
    """Runs `kept` in the process of `frozen.py`."""

    def __init__(self, scratch: Path) -> None:
        self._streams = {"out": scratch / "stdout", "err": scratch / "stderr"}
        # numpy starts threads otherwise, and a process with threads must not fork
        env = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}  # noqa: TID251 # of a process
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.golden.frozen"],
            cwd=ROOT,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, cwd: Path, env: dict[str, str], *words: str) -> tuple[int, str, str]:
        """Run Python with these words, as in `-m kept show`; its exit code, stdout and stderr."""
        streams = {name: str(path) for name, path in self._streams.items()}
        request = {"words": words, "cwd": str(cwd), "env": env, **streams}
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, f"the process of frozen.py ended with {self._process.wait()}"
        out, err = (path.read_text(encoding="utf-8") for path in self._streams.values())
        return int(answer), out, err

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(timeout=30)
        self._process.stdout.close()


@contextmanager
def frozen_kept() -> Generator[FrozenKept]:
    """`kept` with a clock that stands still, until the end of the `with` block."""
    with tempfile.TemporaryDirectory(prefix="kept-golden-") as scratch:
        frozen = FrozenKept(Path(scratch))
        try:
            yield frozen
        finally:
            frozen.close()


@dataclass
class Stage:
    """The folder of one golden run, and what happened in it."""

    kept: FrozenKept
    folder: Path
    server: ModelServer
    calls: list[Called] = field(default_factory=list[Called])
    inputs: dict[Path, bytes] = field(default_factory=dict[Path, bytes])
    """Files that were written before the first command."""

    def write(self, name: str, text: str) -> None:
        """Write an input."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        self.inputs[path] = path.read_bytes()

    def write_rows(self, name: str, rows: list[Any]) -> None:
        """Write an input of JSON lines."""
        self.write(name, "".join(json.dumps(row) + "\n" for row in rows))

    def copy(self, source: str) -> None:
        """Copy a folder of the repository, as inputs."""
        for path in sorted((ROOT / source).iterdir()):
            self.write(path.name, path.read_text(encoding="utf-8"))

    def run(self, *words: str) -> Called:
        """Run `kept` with these words."""
        return self._run(words, "-m", "kept", *words)

    def run_file(self, name: str) -> Called:
        """Run a Python file of the folder."""
        return self._run((name,), str(self.folder / name))

    def _run(self, shown: tuple[str, ...], *words: str) -> Called:
        called = Called(shown, *self.kept.run(self.folder, self._env(), *words))
        self.calls.append(called)
        return called

    def _env(self) -> dict[str, str]:
        given = {name: os.environ[name] for name in PASSED_ON if name in os.environ}  # noqa: TID251
        own = {
            "HOME": str(self.folder / ".home"),
            "KEPT_CACHE": str(self.folder / ".home" / "cache"),
            "OPENAI_COMPATIBLE_BASE_URL": self.server.v1,
            "KEY": "sk-golden",
            "COLUMNS": "100",
            "TERM": "dumb",
            "TZ": "UTC",
        }
        return {**given, **own}

    def runs(self) -> list[Path]:
        """Folders of the runs that were made, by their ids."""
        return sorted((self.folder / ".kept" / "runs").glob("*"))

    def made(self) -> Iterator[Path]:
        """Files that commands wrote or changed."""
        for path in sorted(self.folder.rglob("*")):
            if path.is_file() and path.read_bytes() != self.inputs.get(path):
                yield path


@contextmanager
def stage(kept: FrozenKept, server: ModelServer) -> Generator[Stage]:
    """A stage in a new folder, whose path has always the same length."""
    base = Path(tempfile.gettempdir()).resolve()
    room = PATH_LENGTH - len(f"{base}/kept-12345678/{NAME}")
    # a shell would quote other characters, and outputs show such commands
    is_usable = room >= 0 and shlex.quote(str(base)) == str(base)
    assert is_usable, f"set TMPDIR to a folder with a short and plain path: it is {base}"
    parent = Path(tempfile.mkdtemp(prefix="kept-", suffix="-" * room, dir=base))
    folder = parent / NAME
    folder.mkdir()
    assert len(str(folder)) == PATH_LENGTH
    try:
        yield Stage(kept, folder, server)
    finally:
        shutil.rmtree(parent)
