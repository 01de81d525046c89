import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kept.sandbox.process import descendants
from tests.processes import is_gone, read_pid

pytestmark = [pytest.mark.kill, pytest.mark.sandbox]


def test_a_killed_kept_leaves_no_process_of_its_tools(tmp_path: Path):
    target = Path(__file__).with_name("kill_target.py")
    process = subprocess.Popen([sys.executable, str(target), str(tmp_path)])
    try:
        read_pid(tmp_path / "ready", 60)
    finally:
        started = descendants(process.pid)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    server = [int(line) for line in (tmp_path / "server").read_text().split()]
    function = int((tmp_path / "function").read_text())
    # the server, its child, the walls, and what is between them
    assert len({*server, function, *started}) >= 4
    assert all(is_gone(pid) for pid in (*server, function, *started))
