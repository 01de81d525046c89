"""A process that is forked is to a test what one that was started is."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import warm
from tests.processes import is_gone, is_running

pytestmark = pytest.mark.slow

TELL = """
import atexit, json, os, sys, threading
import kept.run
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
        command = [sys.executable, *(words or ("program.py",))]
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
        ("print('said'); raise KeyboardInterrupt", -signal.SIGINT, "said\n", "KeyboardInterrupt"),
        ("import atexit; atexit.register(print, 'last'); 1 / 0", 1, "last\n", "by zero"),
    ],
)
def test_it_ends_as_one_that_was_started(
    program: str, code: int, out: str, err: str, tmp_path: Path
):
    done = run(tmp_path, program)
    assert (done.returncode, done.stdout) == (code, out)
    assert done.stderr.rstrip("\n").endswith(err)


def test_a_module_is_run_as_by_its_name(tmp_path: Path):
    tell = "import sys; print(__name__, sys.argv[1:], __file__); sys.exit(7)"
    done = run(tmp_path, tell, "-m", "program", "a", "b")
    assert (done.returncode, done.stdout) == (7, f"__main__ ['a', 'b'] {tmp_path}/program.py\n")


def test_who_asked_through_a_shell_and_is_killed_takes_its_command_along(tmp_path: Path):
    warm.put_command(tmp_path)
    (tmp_path / "cases.jsonl").write_text("{}\n")
    task = "runner: {command: 'echo $$ > pid; sleep 300'}\nscorer: {command: 'true'}\n"
    (tmp_path / "task.yaml").write_text(
        f"artifacts: {{include: [cases.jsonl]}}\n{task}sandbox: {{walls: 'off'}}\n"
        "objective: {primary_metric: score, direction: maximize}\nbudget: {max_iterations: 1}\n"
        "proposers: [{kind: variants, files: [task.yaml]}]\n"
    )
    shell = subprocess.Popen([tmp_path / "kept", "optimize", "task.yaml", "-q"], cwd=tmp_path)
    runs = tmp_path / ".kept" / "runs"
    deadline = time.monotonic() + 60
    while not (found := [*runs.glob("*/lock")]) or not found[0].read_text():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    pid = int(re.findall(r"\d+", found[0].read_text())[0])
    assert is_running(pid)
    shell.kill()
    shell.wait()
    assert is_gone(pid)


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
    script = 'kept --version; kept nonsense 2>&1; echo "exit $?"; kept check nowhere'
    env = {"PATH": f"{tmp_path}{os.pathsep}{os.defpath}", "HOME": str(tmp_path)}
    command = ["bash", "-c", script]
    pipe = subprocess.PIPE
    done = subprocess.run(command, cwd=tmp_path, env=env, stdout=pipe, text=True, check=False)
    assert done.stdout.startswith("kept ")
    assert "there is no command `nonsense`" in done.stdout
    assert "\nexit 2\n" in done.stdout
    assert done.returncode == 2
