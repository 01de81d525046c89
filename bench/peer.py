"""Peers in environments of their own, made at first use."""

import subprocess
import sys
import venv

from bench.harness import ROOT, say

VERSION = "0.1.4"
"""Of gepa."""
OPENAI = "3.49.0"


def gepa_python() -> str | None:
    """The interpreter that has gepa, of the same version as this one; None where it cannot be."""
    return _python("gepa", VERSION)


def openai_python() -> str | None:
    """The same for the SDK of OpenAI, with aiohttp beside its own way to speak HTTP."""
    return _python("openai", OPENAI, "[aiohttp]")


def _python(package: str, version: str, extra: str = "") -> str | None:
    folder = ROOT / "bench" / f".venv-{package}"
    python = folder / "bin" / "python"
    if python.exists() and _version(str(python), package) == version:
        return str(python)
    say(f"making {folder.relative_to(ROOT)} with {package} {version} (once)")
    try:
        venv.create(folder, clear=True, with_pip=True)
        install = [str(python), "-m", "pip", "install", "-q", f"{package}{extra}=={version}"]
        subprocess.run(install, check=True, capture_output=True, text=True)
    except subprocess.CalledProcessError as error:
        output = error.stderr or error.output or ""
        text = output if isinstance(output, str) else output.decode(errors="replace")
        say(f"without {package}: {(text.strip().splitlines() or [str(error)])[-1]}")
        return None
    return str(python)


def _version(python: str, package: str) -> str:
    code = f"import importlib.metadata as m, sys; print(m.version('{package}'), sys.version)"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    version, _, interpreter = done.stdout.strip().partition(" ")
    return version if interpreter == sys.version.strip() else ""
