"""Folders for a while: gone when their process ends, and not before."""

import os
import subprocess
import sys
from pathlib import Path

HELD = """\
import os, sys, threading
from kept.sandbox.temp_dirs import scratch_folder

held = scratch_folder("serve")
folder = held.__enter__()
(folder / "inner").mkdir()
# as a thread has it that waits for an answer; nobody ends that one
threading.Thread(target=lambda _: threading.Event().wait(), args=(held,), daemon=True).start()
if pid := os.fork():
    os.waitpid(pid, 0)
    print(folder.exists())
sys.exit(0)
"""


def test_a_folder_that_nobody_closes_goes_with_its_process_and_not_with_a_fork(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", HELD],
        env={"TMPDIR": str(tmp_path), "PATH": os.defpath},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "True\n", done.stderr
    assert list(tmp_path.iterdir()) == []
