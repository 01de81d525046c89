"""An agent of so many cases, the commands that test it, and what one command took."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from bench.harness import ROOT, ArmFailed, scratch

AGENT = """\
name: answers
model: {{provider: openai, name: gpt-5-mini, endpoint: "{url}", api_key: "${{OPENAI_API_KEY}}"}}
instructions: {{inline: You answer in one word.}}
evaluations:
  metrics:
    - {{type: standard, metric: equality, threshold: 1.0}}
execution: {{parallel_test_cases: {at_once}}}
test_cases:
"""
CASE = "  - {{name: case-{n}, input: 'What is question {n}?', ground_truth: forty-two}}\n"


@dataclass(frozen=True, slots=True)
class Task:
    """What both arms are to do."""

    cases: int
    at_once: int = 8
    latency: float = 0.0

    @property
    def ideal(self) -> float:
        """Seconds of a run that does nothing but wait, with all places taken."""
        return -(-self.cases // self.at_once) * self.latency


class Took(NamedTuple):
    """What one command took, from its start to its end."""

    wall: float
    cpu: float
    memory: float
    span: float
    """Seconds from the first request to the last reply, as the server saw it."""
    at_once: float


class Server:
    """A model in a process of its own."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._to, self._from = process.stdin, process.stdout
        self.url = self._from.readline().strip()

    def read(self) -> dict[str, float]:
        """What it saw since it was last asked."""
        print(file=self._to, flush=True)
        return json.loads(self._from.readline())


@contextmanager
def serving(latency: float) -> Generator[Server]:
    command = [sys.executable, "-m", "bench.test_run.server", str(latency)]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        try:
            yield Server(process)
        finally:
            process.stdin.close()


Command = Callable[[Task, str], list[str]]
"""What is run for a task, with a model at that address."""


def testing(program: str) -> Command:
    """A program that has the command of both."""
    return lambda task, url: [program, "test", "run", "agent.yaml"]


def bare(task: Task, url: str) -> list[str]:
    """As many requests, and no more than that."""
    script = str(ROOT / "bench" / "test_run" / "bare.py")
    return [sys.executable, script, url, str(task.cases), str(task.at_once)]


def run_command(command: Command, task: Task, server: Server) -> Took:
    """Run it on an agent.yaml in a fresh folder; every case has to pass."""
    words = command(task, server.url)
    with scratch() as folder:
        cases = "".join(CASE.format(n=n) for n in range(task.cases))
        written = AGENT.format(url=server.url, at_once=task.at_once) + cases
        (folder / "agent.yaml").write_text(written, encoding="utf-8")
        said = folder / "said.txt"
        server.read()
        with said.open("w", encoding="utf-8") as output:
            began = time.perf_counter()
            process = subprocess.Popen(
                words,
                cwd=folder,
                env=environment(server.url, folder),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
            _, status, usage = os.wait4(process.pid, 0)
            wall = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        seen = server.read()
        if process.returncode != 0 or seen["calls"] != task.cases:
            end = said.read_text(encoding="utf-8", errors="replace")[-2000:]
            raise ArmFailed(
                f"`{words[0]}` ended with {process.returncode} after {seen['calls']} calls\n{end}"
            )
    cpu = usage.ru_utime + usage.ru_stime
    return Took(wall, cpu, usage.ru_maxrss / 1024, seen["span"], seen["at_once"])


def environment(url: str, folder: Path) -> dict[str, str]:
    """The same for both; the peer's SDK would else send its traces to the internet, and wait."""
    return os.environ | {  # noqa: TID251 # handed on, not read
        "OPENAI_API_KEY": "none",
        "OPENAI_BASE_URL": url,
        "OPENAI_AGENTS_DISABLE_TRACING": "1",
        "KEPT_HOME": str(folder / "home"),
    }
