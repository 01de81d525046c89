"""What Python scorers and graders can learn of the environment of Kept: nothing."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kept.sandbox.capabilities import abilities

pytestmark = [
    pytest.mark.slow,
    pytest.mark.sandbox,
    pytest.mark.skipif(not abilities().walls, reason="no walls here"),
]

CANARY = "sk-canary-of-the-parent"

# Looks at every process that there is, also at those that a mount of ours may cover. The canary is
# no text of its own, or the scorer would find itself.
GRADERS = f"""
import os, subprocess
from pathlib import Path

CANARY = {CANARY[:9]!r} + {CANARY[9:]!r}

def leaked(output):
    if os.readlink("/proc/self/ns/mnt") != Path("outside").read_text():
        # never outside: root would take /proc from the whole machine
        subprocess.run(["umount", "-l", "/proc"], capture_output=True)
    found = []
    for pid in (str(os.getppid()), *os.listdir("/proc")):
        try:
            found.append(Path("/proc", pid, "environ").read_bytes())
        except OSError:
            pass
    Path("seen").write_text(str(len(found)))
    return sum(CANARY.encode() in data for data in found)
"""
TASK = """\
artifacts: {include: [prompt.md]}
runner: {command: "true"}
scorer: {type: python, function: "graders:leaked"}
objective: {primary_metric: score, direction: minimize, bounds: [0, 100]}
proposers: [{kind: variants, files: ["variants/*.md"]}]
budget: {max_iterations: 1}
"""

ORDINARY = ("unshare", "--user", "--map-user=1000", "--map-group=1000")
"""Gives a process another user, without any privilege, to whom our files belong."""


@pytest.mark.parametrize("user", ["root", "ordinary"])
def test_a_scorer_that_looks_for_keys_in_other_processes_finds_none(tmp_path: Path, user: str):
    if user == "root" and os.geteuid() != 0:
        pytest.skip("needs root")
    (tmp_path / "variants").mkdir()
    (tmp_path / "prompt.md").write_text("seed\n")
    (tmp_path / "variants" / "a.md").write_text("other\n")
    (tmp_path / "graders.py").write_text(GRADERS)
    (tmp_path / "task.yaml").write_text(TASK)
    (tmp_path / "outside").write_text(os.readlink("/proc/self/ns/mnt"))  # noqa: PTH115 # no path
    become = ORDINARY if os.geteuid() == 0 and user == "ordinary" else ()
    done = subprocess.run(
        [*become, sys.executable, "-m", "kept", "optimize", "task.yaml", "--json"],
        cwd=tmp_path,
        env={"PATH": os.defpath, "HOME": str(tmp_path), "OPENAI_API_KEY": CANARY},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["seed"]["value"] == 0
    # its own, so that it did look; and it writes where it always could
    assert int((tmp_path / "seen").read_text()) > 0


def test_without_walls_nobody_else_may_read_the_process():
    """Needs no root: the kernel gives the files of such a process in /proc to root."""
    code = (
        "import os; from kept.sandbox.worker import _forbid_reading; _forbid_reading();"
        "print(os.stat(f'/proc/{os.getpid()}/environ').st_uid,"
        " os.popen('cat /proc/$PPID/environ 2>&1').read())"
    )
    become = ORDINARY if os.geteuid() == 0 else ()
    words = [*become, sys.executable, "-c", code]
    env = {"PATH": os.defpath, "OPENAI_API_KEY": CANARY}
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    assert "Permission denied" in done.stdout, done.stderr
    assert CANARY not in done.stdout
