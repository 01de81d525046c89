"""Instructions a rollout, which are the same on a busy machine as on an idle one.

Run it as `.venv/bin/python -m bench.count [--no-gepa] [--cases N]`; it needs `valgrind`. A change
of the engine that is too small to see in processor time shows here: the count is good to one in a
thousand. What the kernel does, such as the writing itself, is not in it; and as all is slow there,
the engine writes in smaller groups than it would: compare a count with one of the same arm, and for
arms with one another see `bench.engine`. gepa with its state saved is left out: it would take a
quarter of an hour.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
from dataclasses import asdict, replace

from bench.engine import BARE, GEPA, KEPT
from bench.harness import ROOT, Arm, ArmFailed, say, scratch
from bench.peer import gepa_python
from bench.reading import Order
from bench.report import Report, Table, show

FEW, MANY = 1_000, 5_000
"""Rollouts of the two runs whose difference is counted, so that starting up is not."""


def count(arm: Arm, rollouts: int) -> int:
    say(f"{arm.name}, {rollouts:,} rollouts")
    with scratch() as folder:
        order = replace(arm.order, rollouts=rollouts, folder=str(folder) if arm.keeps else "")
        valgrind = ("valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null")
        command = [*valgrind, arm.python, "-m", arm.module, json.dumps(asdict(order))]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    found = re.search(r"Collected : (\d+)", done.stderr)
    if done.returncode or found is None:
        raise ArmFailed(f"`{arm.name}` ended with {done.returncode}\n{done.stderr}")
    return int(found[1])


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.count", description="Instructions a rollout.")
    parser.add_argument("--no-gepa", action="store_true", help="Kept and the bare loop only")
    parser.add_argument("--cases", type=int, default=20, help="deciding cases (default: 20)")
    given = parser.parse_args()
    if shutil.which("valgrind") is None:
        sys.exit("there is no `valgrind` here\n\nhint: on Debian, apt-get install valgrind")
    order = Order("instant", cases=given.cases)
    arms = [Arm("kept", KEPT, order, keeps=True), Arm("bare loop", BARE, order, keeps=True)]
    if not given.no_gepa and (gepa := gepa_python()):
        arms.append(Arm("gepa, nothing saved", GEPA, order, gepa))
    # compiled before it is counted
    subprocess.run([sys.executable, "-m", "compileall", "-q", "src", "bench"], cwd=ROOT, check=True)
    each = {arm.name: (count(arm, MANY) - count(arm, FEW)) / (MANY - FEW) for arm in arms}
    rows = [
        (name, f"{found:,.0f}", f"{each['kept'] / found:.2f} ×") for name, found in each.items()
    ]
    head = ("arm", "instructions a rollout", "kept against it")
    note = f"Between {FEW:,} and {MANY:,} rollouts; {given.cases} deciding cases."
    table = Table("Instant evaluator", head, rows, note)
    show(Report("count", "Instructions", [table], {}), None)


if __name__ == "__main__":
    main()
