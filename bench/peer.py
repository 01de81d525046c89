"""Peers in environments of their own, made at first use."""

import subprocess
import sys
import venv
from pathlib import Path

from bench.harness import ROOT, say
from kept.settings import cache_home

VERSION = "0.1.4"
"""Of gepa."""
OPENAI = "3.49.0"
AWP = "1.0.56"
"""Of awp-agents."""
OPTUNA = "5.0.0"
SKILLOPT = "0.2.0"
HOLODECK = "0.7.1"
HOLODECK_LACKS = ("exceptiongroup", "openai==2.41.0")
"""What holodeck-ai needs and does not ask for, and a version that it works with."""
PATIENCE = 720
"""Seconds for an installation."""


def gepa_python() -> str | None:
    """The interpreter that has gepa, of the same version as this one; None where it cannot be."""
    return _python("gepa", VERSION)


def openai_python() -> str | None:
    """The same for the SDK of OpenAI, with aiohttp beside its own way to speak HTTP."""
    return _python("openai", OPENAI, "[aiohttp]")


def awp_python() -> str | None:
    """The same for awp-agents, which has the loop that an agent run is."""
    return _python("awp-agents", AWP)


def optuna_python() -> str | None:
    """The same for Optuna, apart from the version that Kept itself uses."""
    return _python("optuna", OPTUNA)


def skillopt_python() -> str | None:
    """The same for SkillOpt, which has the method that training is."""
    return _python("skillopt", SKILLOPT)


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


def kept_program() -> str:
    """The command of this environment."""
    return str(Path(sys.executable).with_name("kept"))


def holodeck_program() -> str | None:
    """The command of holodeck-ai, in the user's cache for its 1.6 GB; None where it cannot be."""
    folder = cache_home() / "peers" / "holodeck"
    python = folder / "venv" / "bin" / "python"
    program = python.with_name("holodeck")
    if program.exists() and _version(str(python), "holodeck-ai") == HOLODECK:
        return str(program)
    say(f"making {folder} with holodeck-ai {HOLODECK} (once; 1.6 GB)")
    try:
        venv.create(folder / "venv", clear=True, with_pip=True)
        # pip alone does not find versions that fit within ten minutes
        subprocess.run(
            [str(python), "-m", "pip", "install", "-q", "uv"],
            check=True,
            capture_output=True,
            text=True,
        )
        uv = [str(python.with_name("uv")), "pip", "install", "-q", "--python", str(python)]
        wanted = [f"holodeck-ai[openai-agents]=={HOLODECK}", *HOLODECK_LACKS]
        install = ["nice", "-n", "10", *uv, *wanted]
        subprocess.run(install, check=True, capture_output=True, text=True, timeout=PATIENCE)
    except (subprocess.SubprocessError, OSError) as error:
        say(f"without holodeck-ai: {error} {getattr(error, 'stderr', '') or ''}")
        return None
    return str(program)
