"""What it takes to start: imports and `--help`, beside a bare interpreter and `import gepa`.

Run it as `.venv/bin/python -m bench.start [--repeats N] [--no-gepa] [--out FOLDER]`. It also shows
that nothing of it reaches for the network.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import NamedTuple

from bench.harness import ROOT, spread
from bench.peer import gepa_python
from bench.report import RESULTS, Goal, Report, Table, goals_table, show

EVERY_NAME = "import kept; [getattr(kept, name) for name in kept.__all__]"

HELP_GOAL = 2.0
"""What `kept --help` may take of what `import gepa` takes."""

REFUSE = """\
import sys

def refuse(event, arguments):
    if event.startswith('socket.') and event not in ('socket.gethostname', 'socket.__new__'):
        raise SystemExit(f'{event} {arguments}')

sys.addaudithook(refuse)
sys.argv = ['kept', '--help']
"""
"""Ends a process that looks up a name, connects, binds or sends."""


@dataclass(frozen=True, slots=True)
class Start:
    """One way to start a process."""

    name: str
    command: tuple[str, ...]
    over: str = ""
    """The start that it adds to: the same interpreter doing nothing."""


class Took(NamedTuple):
    """Seconds that one start took."""

    wall: float
    cpu: float


def starts(gepa: str | None) -> list[Start]:
    kept = sys.executable
    found = [
        Start("bare interpreter", (kept, "-c", "pass")),
        Start("import kept", (kept, "-c", "import kept"), "bare interpreter"),
        Start("from kept import optimize", (kept, "-c", OPTIMIZE), "bare interpreter"),
        Start("every public name", (kept, "-c", EVERY_NAME), "bare interpreter"),
    ]
    if gepa:
        bare = "bare interpreter of gepa's environment"
        found += [
            Start(bare, (gepa, "-c", "pass")),
            Start("import gepa", (gepa, "-c", "import gepa"), bare),
        ]
    script = Path(sys.executable).with_name("kept")
    if script.exists() and _took((str(script), "--help")):
        found.append(Start("kept --help", (str(script), "--help"), "bare interpreter"))
    return found


OPTIMIZE = "from kept import optimize"


def measure(given: Sequence[Start], repeats: int) -> dict[str, list[Took]]:
    """In rounds, every start once a round; a first round fills caches and is not counted."""
    took: dict[str, list[Took]] = {start.name: [] for start in given}
    for number in range(repeats + 1):
        for start in given:
            one = _took(start.command)
            if one is None:
                raise SystemExit(f"`{' '.join(start.command)}` failed")
            if number:
                took[start.name].append(one)
    return took


def _took(command: Sequence[str]) -> Took | None:
    """None when it fails."""
    began = time.perf_counter()
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    return None if process.returncode else Took(wall, usage.ru_utime + usage.ru_stime)


def added(took: dict[str, list[Took]], start: Start) -> list[Took]:
    """What a start took beyond its bare interpreter, round by round."""
    pairs = zip(took[start.name], took[start.over], strict=True)
    return [Took(one.wall - bare.wall, one.cpu - bare.cpu) for one, bare in pairs]


def offline(helps: bool) -> list[tuple[str, str, bool]]:
    """What was started without a network, how, and whether it went well."""
    code = {"every public name": EVERY_NAME}
    if helps:
        code["kept --help"] = "from kept.ui.cli.main import main; main()"
    found: list[tuple[str, str, bool]] = []
    for name, body in code.items():
        how = "ended at the first use of a socket"
        found.append((name, how, _took((sys.executable, "-c", REFUSE + body)) is not None))
        # a network namespace of its own has not even a loopback; not every machine may make one
        if shutil.which("unshare") and _took(("unshare", "-n", "true")):
            command = ("unshare", "-n", sys.executable, "-c", REFUSE + body)
            found.append((name, "and in a namespace without a network", _took(command) is not None))
    return found


def goals_of(took: dict[str, list[Took]], given: Sequence[Start]) -> list[Goal]:
    extra = {s.name: median(one.cpu for one in added(took, s)) for s in given if s.over}
    goals: list[Goal] = []
    theirs = extra.get("import gepa")
    for name, times in (("import kept", 1.0), (OPTIMIZE, 1.0), ("kept --help", HELP_GOAL)):
        what = f"`{name}` adds ≤ {times:g} × what `import gepa` adds"
        mine = extra.get(name)
        if mine is None or theirs is None:
            goals.append(Goal(what, "", None))
            continue
        measured = f"{mine / theirs:.2f} × ({mine * 1000:.0f} ms and {theirs * 1000:.0f} ms)"
        goals.append(Goal(what, measured, mine <= times * theirs))
    return goals


def rows_of(took: dict[str, list[Took]], given: Sequence[Start]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for start in given:
        all_of = took[start.name]
        more = added(took, start) if start.over else []
        figures = (
            [one.cpu for one in all_of],
            [one.wall for one in all_of],
            [one.cpu for one in more],
        )
        rows.append((start.name, *(spread(v * 1000 for v in part) for part in figures)))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.start", description="What it takes to start.")
    parser.add_argument("--repeats", type=int, default=21, help="rounds (default: 21)")
    parser.add_argument("--no-gepa", action="store_true", help="Kept and the bare interpreter only")
    parser.add_argument("--out", type=Path, help="where the results go (default: bench/results)")
    options = parser.parse_args()
    gepa = None if options.no_gepa else gepa_python()
    given = starts(gepa)
    took = measure(given, options.repeats)
    alone = offline(any(start.name == "kept --help" for start in given))
    goals = goals_of(took, given)
    goals.append(Goal("no network", f"{len(alone)} starts", all(well for *_, well in alone)))
    head = ("start", "CPU ms", "wall ms", "CPU ms added")
    note = (
        f"Median (least–greatest) of {options.repeats} rounds. Added: over the bare interpreter of "
        "the same environment in the same round."
    )
    without = [(name, how, "ok" if well else "FAILED") for name, how, well in alone]
    tables = [
        goals_table(goals),
        Table("Starts", head, rows_of(took, given), note),
        Table("Without a network", ("start", "how", "went"), without),
    ]
    raw = {"goals": [goal.row() for goal in goals], "took": took}
    show(Report("start", "Starting", tables, raw), options.out or RESULTS)


if __name__ == "__main__":
    main()
