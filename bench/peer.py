"""gepa in an environment of its own, made at first use."""

import subprocess
import sys
import venv

from bench.harness import ROOT, say

VERSION = "0.1.4"
FOLDER = ROOT / "bench" / ".venv-gepa"


def gepa_python() -> str | None:
    """The interpreter that has gepa, of the same version as this one; None where it cannot be."""
    python = FOLDER / "bin" / "python"
    if python.exists() and _version(str(python)) == VERSION:
        return str(python)
    say(f"making {FOLDER.relative_to(ROOT)} with gepa {VERSION} (once)")
    try:
        venv.create(FOLDER, clear=True, with_pip=True)
        install = [str(python), "-m", "pip", "install", "-q", f"gepa=={VERSION}"]
        subprocess.run(install, check=True, capture_output=True, text=True)
    except subprocess.CalledProcessError as error:
        output = error.stderr or error.output or ""
        text = output if isinstance(output, str) else output.decode(errors="replace")
        say(f"without gepa: {(text.strip().splitlines() or [str(error)])[-1]}")
        return None
    return str(python)


def _version(python: str) -> str:
    code = "import importlib.metadata as m, sys; print(m.version('gepa'), sys.version)"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    version, _, interpreter = done.stdout.strip().partition(" ")
    return version if interpreter == sys.version.strip() else ""
