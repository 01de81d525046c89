"""What a user installs: the wheel, in an environment that never saw the checkout."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.docs_pages import matches, normalise, read_blocks, read_commands

ROOT = Path(__file__).parent.parent

pytestmark = pytest.mark.wheel


def run(*argv: str | Path, cwd: Path, env: dict[str, str] | None = None) -> tuple[str, str]:
    """What it printed, and what it said besides."""
    done = subprocess.run(
        argv,
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout, done.stderr


UV = shutil.which(
    "uv", path=os.pathsep.join([str(Path(sys.executable).parent), *os.get_exec_path()])
)


def run_first(by_uv: Sequence[str | Path], by_pip: Sequence[str | Path], cwd: Path) -> None:
    """With uv, which takes a tenth of the time; with pip where uv is not, or does not find it."""
    if UV:
        with suppress(AssertionError):
            run(UV, *by_uv, cwd=cwd)
            return
    run(*by_pip, cwd=cwd)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    by_pip = (sys.executable, "-m", "build", "--wheel", "--outdir", folder, ROOT)
    run_first(("build", "-q", "--wheel", "--out-dir", folder, ROOT), by_pip, folder)
    (path,) = folder.glob("*.whl")
    return path


def test_the_wheel_holds_every_file_of_the_package(wheel: Path):
    source = ROOT / "src"
    present = {
        path.relative_to(source).as_posix()
        for path in (source / "kept").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if not name.split("/")[0].endswith("-info")}
    assert packed == present


class Installed(NamedTuple):
    """A `kept` far from the checkout."""

    python: Path
    elsewhere: Path
    env: dict[str, str]

    def install(self, what: str) -> None:
        by_pip = (self.python, "-m", "pip", "install", "-q", "--no-compile", what)
        by_uv = ("pip", "install", "-q", "--python", self.python, what)
        run_first(by_uv, by_pip, self.elsewhere)

    def demo(self, *words: str, **more: str) -> tuple[str, str]:
        kept = self.python.parent / "kept"
        return run(kept, "demo", *words, cwd=self.elsewhere, env={**self.env, **more})


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel alone, without extras, in an environment of its own."""
    folder = tmp_path_factory.mktemp("installed")
    # virtualenv, since Debian's Python has no ensurepip for `venv`.
    run(sys.executable, "-m", "virtualenv", "-q", "venv", cwd=folder)
    bin_folder = folder / "venv" / "bin"
    for name in ("home", "elsewhere"):
        (folder / name).mkdir()
    env = {
        "HOME": str(folder / "home"),
        "PATH": os.pathsep.join([str(bin_folder), *os.get_exec_path()]),
        "LANG": "C.UTF-8",
    }
    made = Installed(bin_folder / "python", folder / "elsewhere", env)
    made.install(str(wheel))
    return made


def test_an_installed_kept_runs_its_demo_far_from_the_checkout(installed: Installed):
    answer, said = installed.demo("--keep", "mine")
    # nothing was asked for that could run a model
    before, _, after = said.partition("so this is the demo `redact`, which needs no model")
    assert "needs the package `xllamacpp`" in before
    assert "hint: python -m pip install 'xllamacpp>=" in before
    assert "redact.txt:4: not a pattern" in after
    steps = [line for line in after.splitlines() if line.startswith("step ")]
    assert {"keep", "discard", "crash"} <= {line.split()[2] for line in steps}
    assert all("better" in line or "tied" in line for line in steps if " keep " in line)
    assert answer.startswith("score 0.555556 → 0.9375")
    (folder,) = (installed.elsewhere / "mine" / ".kept" / "runs").iterdir()
    assert f"kept report mine/.kept/runs/{folder.name}" in answer
    assert answer.rstrip().endswith("kept optimize mine/task.yaml")
    assert (folder / "report.md").is_file()
    assert not (installed.elsewhere / ".kept").exists()


@pytest.fixture(scope="module")
def with_model(wheel: Path, installed: Installed) -> Installed:
    """The same, with the model's engine; after the test above, which needs a `kept` without."""
    installed.install(f"{wheel}[local]")
    return installed


FEW = (
    "gate=strict",
    "race=null",
    "cases.split=0:1:0",
    "proposers=[{kind: variants, files: [variants/4-definitions]}]",
)
"""Settings of the demo's task with which it asks the model some dozens of times."""


@pytest.mark.slow
@pytest.mark.model
def test_an_installed_kept_asks_the_model_of_this_machine(with_model: Installed, smollm2: Path):
    task = shutil.copytree(ROOT / "src/kept/ui/demo/reviews", with_model.elsewhere / "reviews")
    cases = (task / "cases.jsonl").read_text(encoding="utf-8").splitlines()
    (task / "cases.jsonl").write_text("\n".join(cases[:16]), encoding="utf-8")
    words = [word for setting in FEW for word in ("--set", setting)]
    env = {**with_model.env, "KEPT_CACHE": str(smollm2.parent.parent)}
    kept = with_model.python.parent / "kept"
    answer, said = run(kept, "optimize", task / "task.yaml", *words, cwd=task, env=env)
    assert re.search(r"^step +0 +keep ", said, re.MULTILINE), said
    (before, after) = re.findall(r"^accuracy (\S+) → (\S+)", answer, re.MULTILINE)[0]
    assert float(after) > float(before)


@pytest.mark.nightly
@pytest.mark.model
def test_the_demo_of_an_installed_kept_is_the_one_that_the_readme_shows(
    with_model: Installed, smollm2: Path
):
    answer, said = with_model.demo(KEPT_CACHE=str(smollm2.parent.parent))
    output = said + answer
    blocks = read_blocks("README.md", (ROOT / "README.md").read_text(encoding="utf-8"))
    (shown,) = (
        command.expected
        for block in blocks
        for command in read_commands(block.text)
        if command.line == "./scripts/demo"
    )
    assert shown is not None
    assert matches(shape(shown), shape(output)), f"README.md shows another demo:\n{output}"
    assert re.search(r"^step +\d+ +keep ", output, re.MULTILINE), output
    (before, after) = re.findall(
        r"^accuracy (\S+) → (\S+) on 32 test cases$", output, re.MULTILINE
    )[0]
    assert float(after) > float(before) + 0.1


def shape(text: str) -> str:
    """The lines without their figures and verdicts.

    Another processor rounds otherwise, so that a model says another word now and then.
    """
    text = re.sub(r"(?m)^step +\d+ +\w+ +(\S+).*$", r"step \1", normalise(text))
    text = re.sub(r"(?m)^proposals .*$", "proposals", text)
    return re.sub(r"[+−-]?\d[\d,.]*", "0", text)
