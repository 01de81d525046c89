"""A process that is forked is to a test what one that was started is."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import warm

TELL = """
import atexit, json, os, sys, threading
import kept.runs
atexit.register(print, "at exit")
threading.Timer(0.1, print, ["a thread"]).start()
told = {"argv": sys.argv, "cwd": os.getcwd(), "env": dict(os.environ), "pid": os.getpid(),
        "parent": os.getppid(), "leads": os.getsid(0) == os.getpid(), "path": sys.path[0],
        "read": sys.stdin.read(), "hash": hash("kept"), "name": __name__}
print(json.dumps(told))
"""


def run(folder: Path, program: str, *words: str) -> "subprocess.CompletedProcess[str]":
    """What is the same for a process that was started, and for one that was forked."""
    (folder / "program.py").write_text(program)
    done: list[subprocess.CompletedProcess[str]] = []
    for popen in (subprocess.Popen[str], warm.Popen):
        pipe, env = subprocess.PIPE, {"PATH": os.defpath}
        command = [sys.executable, "program.py", *words]
        with popen(command, cwd=folder, env=env, stdout=pipe, stderr=pipe, text=True) as process:
            out, err = process.communicate(timeout=60)
        done.append(subprocess.CompletedProcess(words, process.returncode, out, err))
    started, forked = done
    assert (started.returncode, started.stdout) == (forked.returncode, forked.stdout)
    assert started.stderr.splitlines()[-1:] == forked.stderr.splitlines()[-1:]
    return forked


@pytest.mark.parametrize(
    ("program", "code", "out", "err"),
    [
        ("print('said')", 0, "said\n", ""),
        ("import sys; sys.exit(3)", 3, "", ""),
        ("import sys; sys.exit('no')", 1, "", "no"),
        ("1 / 0", 1, "", "ZeroDivisionError: division by zero"),
        ("print('said'); import os; os.kill(os.getpid(), 9)", -signal.SIGKILL, "", ""),
        ("raise KeyboardInterrupt", -signal.SIGINT, "", "KeyboardInterrupt"),
    ],
)
def test_it_ends_as_one_that_was_started(
    program: str, code: int, out: str, err: str, tmp_path: Path
):
    done = run(tmp_path, program)
    assert (done.returncode, done.stdout) == (code, out)
    assert done.stderr.rstrip("\n").endswith(err)


def test_it_is_a_process_of_its_own(tmp_path: Path):
    (tmp_path / "program.py").write_text(TELL)
    process = warm.Popen(
        [sys.executable, "program.py", "a", "b"],
        cwd=tmp_path,
        env={"PATH": "/bin", "WORD": "said", "LANG": "C.UTF-8"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    out, _ = process.communicate("read\n", timeout=60)
    assert process.returncode == 0, out
    first, thread, last = out.splitlines()
    told = json.loads(first)
    assert told.pop("hash")
    assert told == {
        "argv": ["program.py", "a", "b"],
        "cwd": str(tmp_path),
        "env": {"PATH": "/bin", "WORD": "said", "LANG": "C.UTF-8"},
        "pid": process.pid,
        "parent": os.getpid(),
        "leads": True,
        "path": str(tmp_path),
        "read": "read\n",
        "name": "__main__",
    }
    assert (thread, last) == ("a thread", "at exit")


def test_who_goes_on_hashes_otherwise_than_who_began(tmp_path: Path):
    (tmp_path / "program.py").write_text("print(hash('kept'))")
    said: list[str] = []
    for _ in range(2):
        command = [sys.executable, "program.py"]
        with warm.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
            said.append(process.communicate(timeout=60)[0])
    assert len(set(said)) == 2


def test_a_shell_has_a_command_that_is_one(tmp_path: Path):
    warm.put_command(tmp_path)
    script = 'kept --version; kept nonsense 2>&1; echo "exit $?"; echo said | kept check -'
    env = {"PATH": f"{tmp_path}{os.pathsep}{os.defpath}", "HOME": str(tmp_path)}
    command = ["bash", "-c", script]
    pipe = subprocess.PIPE
    done = subprocess.run(command, cwd=tmp_path, env=env, stdout=pipe, text=True, check=False)
    assert done.stdout.startswith("kept ")
    assert "there is no command `nonsense`" in done.stdout
    assert "\nexit 2\n" in done.stdout
    assert done.returncode == 2
