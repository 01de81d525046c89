"""What a whole agent run costs, beside awp-agents, whose loop it is: start-up, and one run.

Run it as `.venv/bin/python -m bench.agent_run [--repeats N] [--no-peer] [--out FOLDER]`. A server
on loopback answers both from one script: a plan, one worker that writes one file with a tool, a
critic, a completion. What each of them asks besides is its own affair, and is counted.
"""

import argparse
import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from bench.harness import ratio, say, scratch, spread
from bench.peer import AWP, awp_python, kept_program
from bench.report import RESULTS, Report, Table, show
from kept.core.llm import ModelReply, ToolCall
from kept.testing.server import ModelServer, Seen

TASK = "Write a report on sales to report.md"
MONTHS = ("May", "June", "July", "August", "September", "October")
TEXT = "# Sales\n\n" + "\n\n".join(
    f"{month} brought {12 + 3 * n} orders from {n + 2} shops, the largest worth {n * 70 + 90}."
    for n, month in enumerate(MONTHS)
)
"""Enough of it that the peer takes it for a file."""
KEPT, PEER = "kept", "awp"
RUN_PEER = """\
import sys
from awp.data.workflow import AgentWorkflow
told = AgentWorkflow(
    inputs={}, task=sys.argv[1], model="openai/m", api_key="none", max_loops=12, output_dir="out"
).run()
print(told["status"])
"""
"""As its README has it used: its command runs workflows of files, and this is the same loop."""


class Took(NamedTuple):
    """What one command took."""

    wall: float
    cpu: float
    requests: int
    said: str
    """The end of what it printed."""
    iterations: int = 0
    """Of a refinement."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One side."""

    name: str
    start: Sequence[str]
    """Starts, and does nothing."""
    run: Sequence[str]


def answer(seen: Seen) -> str | ModelReply:
    """What manager, worker and critic of either side say; by what they were told and asked."""
    lines = seen.lines
    told, asked = lines[0].text, "\n".join(line.text for line in lines if line.role == "user")
    if "ritic" in told[:60] or told.startswith("You judge"):
        return json.dumps({"score": 0.9, "defects": [], "summary": "fine"})
    if "anager" in told[:60]:
        return _managed(asked)
    if told.lower().startswith("you are a worker"):
        return _worked(seen, asked)
    # the peer has a validator besides
    return json.dumps({"valid": True, "adjusted_confidence": 0.9, "feedback": ""})


def _managed(asked: str) -> str:
    """By what has come of it so far."""
    if re.search(r"Worker w1|Context: w1", asked):
        return _json(decision="complete", final_result={"summary": "done"}, confidence=0.9)
    if re.search(r"## Plan\n|s1", asked):
        row = {"worker_id": "w1", "subtask_id": "s1", "instructions": "write report.md"}
        return _json(decision="delegate", delegations=[row])
    tool = {"subtask": "s1", "capability": "write a file", "reuse_or_generate": "generate"}
    subtask = {
        "id": "s1",
        "description": "write the report",
        "success_criteria": ["it is there"],
        "required_outputs": ["report.md"],
        "tool_manifest": [{**tool, "assumptions": ["the folder can be written to"]}],
    }
    return _json(decision="plan", subtasks=[subtask])


def _worked(seen: Seen, asked: str) -> str | ModelReply:
    if seen.tool_results:
        result = {"summary": "wrote it", "confidence": 0.9}
        return _json(w1=result) if "Your name" in asked else _json(**result)
    # the peer names its folder by its whole path
    folder = (re.findall(r"_output_dir/\s+\((\S+)\)", asked) or ["output"])[0]
    given = _json(path=f"{folder}/report.md", content=TEXT)
    return ModelReply("", tool_calls=(ToolCall("c1", "file_write", given),))


def _json(**value: object) -> str:
    return json.dumps(value)


def arms_of(python: str | None) -> list[Arm]:
    kept = kept_program()
    words = ("agent", "run", TASK, "--model", "openai_compatible/m", "-q")
    found = [Arm(KEPT, (kept, "agent", "run", "--help"), (kept, *words))]
    if python is not None:
        script = str(Path(python).with_name("awp"))
        found.append(Arm(PEER, (script, "run", "--help"), (python, "-c", RUN_PEER, TASK)))
    return found


def measure(arms: Sequence[Arm], repeats: int) -> dict[str, list[Took]]:
    """In rounds, every command once a round; a first round fills caches and is not counted."""
    both = [(arm, what) for arm in arms for what in ("--help", "run")]
    took: dict[str, list[Took]] = {f"{arm.name} {what}": [] for arm, what in both}
    with ModelServer(answer) as server:
        for number in range(repeats + 1):
            for arm in arms:
                say(f"{arm.name} ({number} of {repeats})")
                for what, command in (("--help", arm.start), ("run", arm.run)):
                    one = took_by(command, server)
                    if number:
                        took[f"{arm.name} {what}"].append(one)
    return took


def took_by(
    command: Sequence[str],
    server: ModelServer,
    prepare: Callable[[Path], None] | None = None,
    ending: Callable[[Path], tuple[int, str]] | None = None,
) -> Took:
    """What a command took in a folder of its own, which may be prepared, and looked at after."""
    before = len(server.log)
    with scratch() as folder:
        if prepare is not None:
            prepare(folder)
        env = {
            "PATH": os.defpath,
            "HOME": str(folder),
            "OPENAI_COMPATIBLE_BASE_URL": server.v1,
            "LLM_BASE_URL": server.v1,
            "LLM_API_KEY": "none",
        }
        began = time.perf_counter()
        process = subprocess.Popen(
            command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert process.stdout is not None
        said = process.stdout.read().decode()
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - began
        process.stdout.close()
        process.returncode = os.waitstatus_to_exitcode(status)
        found = ending(folder) if ending is not None else None
    cpu = usage.ru_utime + usage.ru_stime
    last = said.strip().splitlines()[:1] or [""]
    ended = last[0] if process.returncode in (0, 1) else f"exit {process.returncode}"
    iterations, ended = found or (0, ended)
    return Took(wall, cpu, len(server.log) - before, ended, iterations)


def rows_of(took: Mapping[str, Sequence[Took]], what: str) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for name in (KEPT, PEER):
        mine = took.get(f"{name} {what}")
        if mine:
            cells = [spread(getattr(one, key) * 1000 for one in mine) for key in ("cpu", "wall")]
            requests = spread(one.requests for one in mine)
            rows.append((name, *cells, requests, mine[-1].said[:60] if what == "run" else ""))
    both = [took.get(f"{name} {what}") for name in (KEPT, PEER)]
    if both[0] and both[1]:
        cpu, wall = (
            ratio([getattr(o, key) for o in both[0]], [getattr(o, key) for o in both[1]])
            for key in ("cpu", "wall")
        )
        rows.append(("kept against awp", cpu, wall, "", ""))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.agent_run", description="A whole agent run.")
    parser.add_argument("--repeats", type=int, default=7, help="rounds (default: 7)")
    parser.add_argument("--no-peer", action="store_true", help="Kept only")
    parser.add_argument("--out", type=Path, help="where the results go (default: bench/results)")
    options = parser.parse_args()
    python = None if options.no_peer else awp_python()
    took = measure(arms_of(python), options.repeats)
    head = ("command", "CPU ms", "wall ms", "requests", "ended")
    note = (
        f"Median (least–greatest) of {options.repeats} rounds. Kept journals every reply, and "
        "looks at the start what its sandbox can do; the peer uses its tools in its own process, "
        "and asks a validator besides."
    )
    tables = [
        Table("Start-up", head, rows_of(took, "--help")),
        Table("One scripted run", head, rows_of(took, "run"), note),
    ]
    raw = {"took": {name: [one._asdict() for one in rows] for name, rows in took.items()}}
    report = Report("agent_run", "A whole agent run", tables, raw)
    show(report, options.out or RESULTS, peer=f"awp-agents {AWP}" if python else "left out")


if __name__ == "__main__":
    main()
