"""`kept` as a process of its own beside a server, and killed when that has answered so often."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from kept.testing.server import ModelServer
from tests import warm


def kept(folder: Path, *words: str, **more: str) -> "subprocess.Popen[str]":
    """A command in a folder that is its home, too; nothing of our environment reaches it."""
    env = {"PATH": os.defpath, "HOME": str(folder), "KEY": "none", **more}
    command = [sys.executable, "-m", "kept", *words]
    pipe = subprocess.PIPE
    return warm.Popen(command, cwd=folder, env=env, stdout=pipe, stderr=pipe, text=True)


def killed_at(process: "subprocess.Popen[str]", server: ModelServer, answers: int) -> None:
    """Kill it as soon as the server has given so many answers; it must not have ended before."""
    while process.poll() is None and len(server.answered) < answers:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    _, told = process.communicate(timeout=120)
    assert process.returncode == -signal.SIGKILL, told
