"""The skill of `examples/skills`, trained as its page says, and measured by hand."""

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.examples.by_hand import EXAMPLES

pytestmark = pytest.mark.slow


def loaded(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("stand_in", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def solved(module: ModuleType, skill: str, folder: Path) -> float:
    """How much of the data the student gets right, asked without Kept."""
    rows = [json.loads(line) for line in (folder / "dates.jsonl").read_text().splitlines()]
    right = [module.student(skill, row["question"], 7) == row["answer"] for row in rows]
    return sum(right) / len(rows)


ASKS = """
import os, signal, socket, sys, time
address = os.environ["STAND_IN"].split("/")[2].split(":")
asked = socket.create_connection((address[0], int(address[1])))
asked.sendall(b"POST /v1/chat/completions HTTP/1.1\\r\\nContent-Length: 900\\r\\n\\r\\n{")
def heard(*_):
    # who hangs up in the middle is no mistake of the stand-in's
    asked.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, bytes([1, 0, 0, 0, 0, 0, 0, 0]))
    asked.close()
    time.sleep(0.5)
    sys.exit(7)
signal.signal(signal.SIGINT, heard)
print("asked", flush=True)
time.sleep(60)
"""


def test_ctrl_c_is_for_the_command_and_the_stand_in_serves_until_that_has_ended(tmp_path: Path):
    stand_in = EXAMPLES / "skills/dates/stand_in.py"
    process = subprocess.Popen(
        [sys.executable, str(stand_in), sys.executable, "-c", ASKS],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None and process.stdout.readline() == "asked\n"
        os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, said) == (7, "")


def test_the_lines_of_the_page_train_a_better_skill(tmp_path: Path):
    shutil.copytree(EXAMPLES / "skills", tmp_path / "examples/skills")
    folder = tmp_path / "examples/skills/dates"
    # as where somebody has used Kept further up: runs are kept there
    (tmp_path / ".kept").mkdir()
    (block,) = re.findall(r"```sh\n(.*?)```", (EXAMPLES / "skills/README.md").read_text(), re.S)
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    env = {"PATH": path, "HOME": str(tmp_path), "KEPT_CACHE": str(tmp_path / "cache")}
    script = f"set -e\n{block}"
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "cases that nothing was tuned on" in done.stdout
    module = loaded(folder / "stand_in.py")
    before, after = (EXAMPLES / "skills/dates/SKILL.md").read_text(), (folder / "SKILL.md")
    best = after.read_text()
    assert solved(module, before, folder) == 0.0
    assert solved(module, best, folder) >= 0.5, best
    assert module.WORDS not in best and module.YEARLESS not in best, "no rule that harms is kept"
