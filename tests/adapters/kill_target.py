"""A process to be killed: a call of a peer's, answered by Kept, that writes down all it is asked.

Usage: python -m tests.adapters.kill_target gepa|dspy|pytest FOLDER [PORT]
"""

import hashlib
import sys
import time
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import kept
from kept.adapters import dspy, gepa
from kept.adapters import pytest as kept_pytest
from tests.adapters.dspy_world import Engine, examples, lm, metric
from tests.adapters.gepa_world import IDEAS, RULE, SEED, Task, tutorial

PYTEST = """#!/bin/bash
# stands in for an interpreter with pytest, which takes a third of a second to start
for word in "$@"; do
  case $word in
    --collect-only) for n in $(seq 60); do echo "tests/test_it.py::test_$n"; done; exit 0 ;;
    --junitxml=*) result=${word#--junitxml=} ;;
    tests/*) test=${word##*_} ;;
  esac
done
exec 3<>/dev/tcp/127.0.0.1/PORT
printf 'GET /%s/%s HTTP/1.0\\r\\n\\r\\n' "$(cksum <code.py | cut -d' ' -f1)" "$test" >&3
cat <&3 >/dev/null
fault='<failure message="wrong"/>'
[ "$test" -le "$(cat code.py)" ] && fault=
echo "<testsuite><testcase>$fault</testcase></testsuite>" >"$result"
[ -z "$fault" ]
"""


class Log:
    """Takes its time, and writes down that somebody asked."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def note(self, what: str) -> None:
        time.sleep(0.004)
        with self.path.open("a") as file:
            file.write(f"{what}\n")


class Slow(Task):
    """Knows no chance."""

    def __init__(self, log: Log) -> None:
        super().__init__(0.0, 1.0)
        self.log = log

    def __call__(self, messages: list[dict[str, str]]) -> str:
        self.log.note("task")
        return super().__call__(messages)


class SlowEngine(Engine):
    """The model of dspy's tutorial."""

    def __init__(self, log: Log) -> None:
        super().__init__()
        self.log = log

    def answer(self, told: str) -> str:
        self.log.note("task")
        return super().answer(told)

    def write(self, prompt: str) -> str:
        self.log.note("reflection")
        return super().write(prompt)


def reflection(log: Log, prompt: str) -> str:
    """A prompt that is a function of what it is told."""
    log.note("reflection")
    at = hashlib.sha256(prompt.encode()).digest()[0]
    return f"<new-text>\n{SEED} {[i for i in IDEAS if i != RULE or at < 40][at % 4]}\n</new-text>"


def run_gepa(folder: Path, log: Log) -> str:
    terms: dict[str, Any] = {"budget": kept.Budget(max_iterations=30), "max_metric_calls": 900}
    result = tutorial(gepa, Slow(log), partial(reflection, log), run_dir=folder, **terms)
    return result.best_candidate["system_prompt"]


def run_dspy(folder: Path, log: Log) -> str:
    theirs: Any = import_module("dspy")
    program = theirs.Predict("question -> answer")
    with theirs.context(lm=lm(SlowEngine(log))):
        best = dspy.optimize(
            *(program, metric, examples(20), examples(30, "z")),
            max_metric_calls=500,
            bounds=(0, 1),
            run_dir=folder,
        )
    return best.signature.instructions


def run_pytest(folder: Path, port: str) -> str:
    project, python = folder.parent / "project", folder.parent / "python"
    project.mkdir(exist_ok=True)
    (project / "code.py").write_text("1")
    python.write_text(PYTEST.replace("PORT", port))
    python.chmod(0o755)
    result = kept_pytest.optimize(
        project,
        ["code.py"],
        proposers=[str(n) for n in range(2, 8)],
        budget=kept.Budget(max_iterations=6),
        python=str(python),
        network="on",
        gate="strict",
        run_dir=folder,
    )
    return result.best.text


def main(kind: str, folder: str, port: str = "") -> None:
    place = Path(folder)
    runs, log = place / "runs-here", Log(place / "calls")
    if kind == "pytest":
        best = run_pytest(runs, port)
    else:
        best = {"gepa": run_gepa, "dspy": run_dspy}[kind](runs, log)
    sys.stdout.write(best)


if __name__ == "__main__":
    main(*sys.argv[1:])
