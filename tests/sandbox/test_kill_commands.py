"""Kill -9 on a run of commands: no result that was written is run for again, and none runs on."""

import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from kept.core.artifact import Candidate
from kept.core.state import State
from kept.sandbox.process import descendants
from kept.store import codec
from kept.store.reader import Run
from tests import warm
from tests.processes import is_gone

pytestmark = [pytest.mark.kill, pytest.mark.slow, pytest.mark.sandbox]

STEPS, CASES, WORKERS = 16, 14, 4
TASK = f"""\
artifacts: {{include: [prompt.md]}}
runner: {{command: "sh run.sh"}}
scorer: {{command: "sh score.sh"}}
objective: {{primary_metric: score, direction: maximize}}
proposers: [{{kind: variants, files: ["variants/*.md"]}}]
cases: {{file: cases.jsonl, split: "0:1:0"}}
gate: strict
sandbox: {{writable: [log]}}
budget: {{max_iterations: {STEPS}}}
workers: {WORKERS}
"""
# one short line a run, so that those of several at a time do not mix
RUN = """\
read -r name rest < prompt.md
echo "$name $(cat "$KEPT_CASE")" >> log
cp prompt.md "$KEPT_OUTPUT"
"""
SCORE = """printf '{"score": %d}' "$(grep -o good "$KEPT_OUTPUT/prompt.md" | wc -l)"\n"""


def text(number: int) -> str:
    return f"v{number} " + "good " * (number * 7 % 11) + "\n"


def write(folder: Path) -> None:
    (folder / "variants").mkdir()
    for number in range(STEPS):
        (folder / "variants" / f"{number:02}.md").write_text(text(number + 1))
    (folder / "prompt.md").write_text("v0 good\n")
    (folder / "run.sh").write_text(RUN)
    (folder / "score.sh").write_text(SCORE)
    (folder / "cases.jsonl").write_text("".join(f'{{"id": "c{n}"}}\n' for n in range(CASES)))
    (folder / "log").touch()
    (folder / "task.yaml").write_text(TASK)


def spawn(folder: Path, walls: str, *words: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "kept", *words, "--set", f"sandbox.walls={walls}", "-q"]
    return warm.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finish(process: "subprocess.Popen[str]") -> None:
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err


def the_folder(folder: Path) -> Path:
    (run,) = (folder / ".kept" / "runs").iterdir()
    return run


def settled(folder: Path) -> State:
    run = Run(the_folder(folder))
    run.close()
    return run.state.settled()


def ran(folder: Path) -> Counter[tuple[str, str]]:
    """How often a command ran, by candidate and case."""
    names = {f"v{n}": Candidate({"prompt.md": text(n)}).id for n in range(1, STEPS + 1)}
    names["v0"] = Candidate({"prompt.md": "v0 good\n"}).id
    lines = (line.split(" ", 1) for line in (folder / "log").read_text().splitlines())
    return Counter((names[name], case.split('"')[3]) for name, case in lines)


def written(folder: Path) -> set[tuple[str, str]]:
    """The pairs whose execution is in the journal: a result, or a call that was answered."""
    path = the_folder(folder) / "rollouts.jsonl"
    rows = [codec.decode_line(line) for line in path.read_bytes().split(b"\n")[:-1]]
    results = {(r.candidate, r.case) for r in rows if isinstance(r, codec.RolloutLine)}
    scopes = [r.scope.split("/") for r in rows if isinstance(r, codec.CallLine)]
    return results | {(scope[1], scope[3]) for scope in scopes}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[State, float]:
    """The run that nobody kills, and how long it takes."""
    folder = tmp_path_factory.mktemp("whole")
    write(folder)
    process = spawn(folder, "auto", "optimize", "task.yaml")
    began = time.monotonic()
    finish(process)
    assert ran(folder).total() >= 200
    assert max(ran(folder).values()) == 1
    assert settled(folder).keeps >= 2
    return settled(folder), time.monotonic() - began


@pytest.mark.parametrize(
    ("moment", "walls"),
    [
        pytest.param(0, "auto", marks=pytest.mark.nightly),
        (1, "auto"),
        pytest.param(1, "off", marks=pytest.mark.nightly),
        pytest.param(2, "auto", marks=pytest.mark.nightly),
    ],
)
def test_a_killed_run_repeats_no_command_whose_result_was_written_and_leaves_none_running(
    moment: int, walls: str, whole: tuple[State, float], tmp_path: Path
):
    state, took = whole
    write(tmp_path)
    process = spawn(tmp_path, walls, "optimize", "task.yaml")
    while not (tmp_path / "log").read_text() and process.poll() is None:
        time.sleep(0.005)
    time.sleep(0.6 * took * (moment + random.random()) / 3)
    # stopped first, so that it starts nothing between the look and the kill
    process.send_signal(signal.SIGSTOP)
    commands = descendants(process.pid)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=120)
    assert all(map(is_gone, commands))
    known, before = written(tmp_path), ran(tmp_path)
    finish(spawn(tmp_path, walls, "resume", "last"))
    again = {pair for pair, times in ran(tmp_path).items() if times > 1}
    assert max(ran(tmp_path).values()) <= 2
    assert not again & known, "a result was written, and its command ran again"
    assert len(again) <= WORKERS, "no more than was in flight may run again"
    assert again <= before.keys()
    assert settled(tmp_path) == state
