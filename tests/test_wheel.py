"""What a user installs: the wheel, in an environment that never saw the checkout."""

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.docs_pages import matches, normalise, read_blocks, read_commands

ROOT = Path(__file__).parent.parent

pytestmark = pytest.mark.wheel


def run(*argv: str | Path, cwd: Path, env: dict[str, str] | None = None) -> str:
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
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--wheel", "--outdir", folder, ROOT, cwd=folder)
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


def installed(what: str, folder: Path) -> tuple[Path, dict[str, str]]:
    """A `kept` far from the checkout, and the environment to call it in."""
    # virtualenv, since Debian's Python has no ensurepip for `venv`.
    run(sys.executable, "-m", "virtualenv", "-q", "venv", cwd=folder)
    bin_folder = folder / "venv" / "bin"
    run(bin_folder / "python", "-m", "pip", "install", "-q", what, cwd=folder)
    for name in ("home", "elsewhere"):
        (folder / name).mkdir()
    env = {
        "HOME": str(folder / "home"),
        "PATH": os.pathsep.join([str(bin_folder), *os.get_exec_path()]),
        "LANG": "C.UTF-8",
    }
    return bin_folder / "kept", env


def test_an_installed_kept_runs_its_demo_far_from_the_checkout(wheel: Path, tmp_path: Path):
    kept, env = installed(str(wheel), tmp_path)
    output = run("/bin/sh", "-c", f"{kept} demo 2>&1", cwd=tmp_path / "elsewhere", env=env)
    # nothing was asked for that could run a model
    assert "pip install 'kept[local]'" in output
    assert "so this is the demo `redact`, which needs no model" in output
    assert "score 0.555556 → 0.9375" in output


@pytest.mark.slow
@pytest.mark.model
def test_the_demo_of_an_installed_kept_is_the_one_that_the_readme_shows(
    wheel: Path, tmp_path: Path, smollm2: Path
):
    kept, env = installed(f"{wheel}[local]", tmp_path)
    env["KEPT_CACHE"] = str(smollm2.parent.parent)
    output = run("/bin/sh", "-c", f"{kept} demo 2>&1", cwd=tmp_path / "elsewhere", env=env)
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
    (before, after) = re.findall(r"^accuracy (\S+) → (\S+)$", output, re.MULTILINE)[0]
    assert float(after) > float(before) + 0.1


def shape(text: str) -> str:
    """The lines without their figures and verdicts.

    Another processor rounds otherwise, so that a model says another word now and then.
    """
    text = re.sub(r"(?m)^step +\d+ +\w+ +(\S+).*$", r"step \1", normalise(text))
    text = re.sub(r"(?m)^proposals .*$", "proposals", text)
    return re.sub(r"[+−-]?\d[\d,.]*", "0", text)
