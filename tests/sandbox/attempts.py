"""A task whose candidates are programs, most of which try to get out."""

import asyncio
import os
import socket
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from kept.core.artifact import Candidate
from kept.core.rollout import Failure
from kept.core.score import Outcome
from kept.recipes.task.compile import compile_task
from kept.run import start
from kept.store.home import Home
from kept.store.reader import Run

NAP = "73317"
"""Seconds that whatever is left running would sleep; nothing else sleeps so long."""

# each ends with a failure when it is held back; {outside} is the folder above the task's
ATTEMPTS = {
    "edit-parent": "echo 99 > ../scorer.py",
    "edit-outside": "echo 99 > {outside}/scorer.py",
    "write-scorer": "echo 'echo 99' > score.sh",
    "append-scorer": "echo 'echo 99' >> {task}/score.sh",
    "unhide-scorer": "umount {task}/score.sh && cat {task}/score.sh",
    "unhide-in-namespace": "unshare -rm sh -c 'umount {task}/score.sh && cat {task}/score.sh'",
    "read-holdout": "cat cases.jsonl > $KEPT_OUTPUT/out",
    "read-holdout-by-path": "cat {task}/cases.jsonl > $KEPT_OUTPUT/out",
    "read-journal": "cat {task}/.kept/runs/*/journal.jsonl > $KEPT_OUTPUT/out",
    "swap-output-file": "rm -f $KEPT_OUTPUT/out; ln -s {outside}/secret $KEPT_OUTPUT/out",
    "swap-output-folder": "rmdir $KEPT_OUTPUT && ln -s {outside} $KEPT_OUTPUT",
    "swap-candidate": "rm -rf $KEPT_CANDIDATE/attempt.sh && ln -s x $KEPT_CANDIDATE/attempt.sh",
    "hard-link": "ln {outside}/secret $KEPT_OUTPUT/out",
    "huge-file": "head -c 2000000000 /dev/zero > $KEPT_OUTPUT/out",
    "huge-tree": "head -c 2000000000 /dev/zero > here",
    "huge-folder": "for n in 1 2 3 4; do head -c 7000000 /dev/zero > $KEPT_OUTPUT/$n; done",
    "huge-memory": "python -c 'x = bytearray(3 << 30)'",
    "fork-bomb": "bomb() {{ bomb | bomb & }}; bomb; sleep " + NAP,
    "sleep": "sleep " + NAP,
    "deaf": "trap '' TERM INT HUP; sleep {nap}; sleep {nap}",
    "signal": "kill -SEGV $$",
    "network": "python {task}/connect.py {port}",
    "network-of-the-host": "python -c 'import socket as s; s.socket(s.AF_VSOCK)'",
    "spin": "while :; do :; done",
}
# these end well, and leave nothing behind them
QUIET = {
    "background": "sleep {nap} & echo good > $KEPT_OUTPUT/out",
    "double-fork": "python daemon.py; echo good > $KEPT_OUTPUT/out",
    "much-said": "yes | head -c 30000000; echo good > $KEPT_OUTPUT/out",
    "write-tree": "echo x > attempt.sh; rm -r sub; ln -s / sub; echo good > $KEPT_OUTPUT/out",
}
BEST = {"best": "sed s/x/good/ sub/word > $KEPT_OUTPUT/out; echo good >> $KEPT_OUTPUT/out"}

DAEMON = f"""
import os
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 3)
        os.execvp("sleep", ["sleep", "{NAP}"])
    os._exit(0)
os.wait()
"""
CONNECT = "import socket, sys; socket.create_connection(('127.0.0.1', int(sys.argv[1])), 3)\n"
SCORE = """n=$(cat "$KEPT_OUTPUT/out" 2>/dev/null | grep -c good); echo "{\\"score\\": $n}"\n"""
TASK = """\
artifacts: {{include: [attempt.sh]}}
runner: {{command: "sh attempt.sh", timeout_seconds: 1.5}}
scorer: {{command: "sh score.sh", timeout_seconds: 20}}
objective: {{primary_metric: score, direction: maximize}}
proposers: [{{kind: variants, files: ["variants/*.sh"]}}]
cases: {{file: cases.jsonl, split: "0:1:0"}}
sandbox: {{walls: {walls}, processes: 60, file_mb: 8, tree_mb: 8, output_mb: 16, memory_mb: 1024}}
budget: {{max_iterations: 40}}
workers: 2
"""


@dataclass(frozen=True)
class Ended:
    """The run after all attempts, and the tree they were made in."""

    outside: Path
    folder: Path
    ids: dict[str, str]
    """Which attempt a candidate is."""
    before: dict[str, bytes]
    connected: int

    @cached_property
    def outcomes(self) -> dict[str, list[Outcome]]:
        """What came of each attempt."""
        found: dict[str, list[Outcome]] = {label: [] for label in self.ids.values()}
        run = Run(self.folder)
        for _, job, outcome in run.rollouts():
            if job.candidate_id in self.ids:
                found[self.ids[job.candidate_id]].append(outcome)
        run.close()
        return found

    def failure(self, label: str) -> Failure:
        """How an attempt failed."""
        (outcome,) = self.outcomes[label]
        assert outcome.failure is not None, f"{label} was not held back: {outcome.metrics}"
        return outcome.failure

    def score(self, label: str) -> float:
        """What an attempt that did no harm scored."""
        (outcome,) = self.outcomes[label]
        assert outcome.failure is None, outcome.failure
        return outcome.metrics["score"]


def tree_of(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, the runs of Kept left out."""
    files = (path for path in folder.rglob("*") if ".kept" not in path.parts)
    return {str(path.relative_to(folder)): path.read_bytes() for path in files if path.is_file()}


def sleepers() -> list[int]:
    """Processes that an attempt left running."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if NAP.encode() in line:
                found.append(int(entry.name))
    return found


def write_task(outside: Path, port: int, attempts: dict[str, str], walls: str) -> Path:
    """The folder of the task, with everything that the attempts are after."""
    task = outside / "task"
    for folder in ("variants", "sub", ".kept"):
        (task / folder).mkdir(parents=True)
    (outside / "secret").write_text("good\n" * 50)
    (outside / "scorer.py").write_text("untouched\n")
    (task / "sub" / "word").write_text("x\n")
    (task / "attempt.sh").write_text("echo nothing > $KEPT_OUTPUT/out\n")
    (task / "attempt.sh").chmod(0o755)
    (task / "score.sh").write_text(SCORE)
    (task / "daemon.py").write_text(DAEMON)
    (task / "connect.py").write_text(CONNECT)
    (task / "cases.jsonl").write_text('{"id": "one", "answer": "good good good"}\n')
    for number, (label, script) in enumerate(attempts.items()):
        text = script.format(outside=outside, task=task, port=port, nap=NAP)
        (task / "variants" / f"{number:02}-{label}.sh").write_text(f"set -e\n{text}\n")
    (task / "task.yaml").write_text(TASK.format(walls=walls))
    return task


def make(outside: Path, attempts: dict[str, str], walls: str) -> Ended:
    """Run a task through all its attempts."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        task = write_task(outside, server.getsockname()[1], attempts, walls)
        before = tree_of(outside)
        plan = compile_task(task / "task.yaml").plan
        folder, _ = asyncio.run(start(plan, Home(task / ".kept")))
        connected = 0
        try:
            server.accept()
            connected = 1
        except BlockingIOError:
            pass
    ids = {
        Candidate({"attempt.sh": path.read_text()}).id: path.stem[3:]
        for path in (task / "variants").iterdir()
    }
    return Ended(outside, folder, ids, before, connected)
