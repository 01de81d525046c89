"""What `kept view` costs over a very long run: the first view, every click, memory.

Run it as `.venv/bin/python -m bench.view [--full] [--quick] [--out FOLDER]`. The run has 10,000
steps and 200,000 rollouts, with `--full` a million. The server is the real command, fresh for the
first view; clicks are pages as a browser fetches them.
"""

import argparse
import http.client
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from urllib.parse import parse_qs, urlsplit

from bench.harness import scratch
from bench.report import RESULTS, Goal, Report, Table, goals_table, show
from bench.view.made import make_run

FIRST_GOAL, CLICK_GOAL, MEMORY_GOAL = 1.5, 0.5, 300.0
"""Seconds, seconds, MB."""


class Served:
    """`kept view` over a home."""

    def __init__(self, home: Path) -> None:
        command = [sys.executable, "-m", "kept", "view", str(home), "--no-browser"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        printed: str = self.process.stdout.readline()
        link = urlsplit(printed.strip())
        assert link.port is not None
        self._port = link.port
        self._cookie = f"kept-{link.port}={parse_qs(link.query)['token'][0]}"

    def get(self, path: str) -> float:
        began = time.perf_counter()
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=120)
        connection.request("GET", path, headers={"Cookie": self._cookie})
        reply = connection.getresponse()
        body = reply.read()
        connection.close()
        assert reply.status == 200, f"{path}: {reply.status} {body[:200]!r}"
        return time.perf_counter() - began

    @property
    def megabytes(self) -> float:
        """The most that it has held so far."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) / 1024

    def close(self) -> None:
        self.process.send_signal(signal.SIGINT)
        self.process.wait()


def clicks(run: str, steps: int) -> dict[str, list[str]]:
    """Pages of every kind, here and there in the run."""
    at = [0, steps // 3, steps // 2, steps - 1]
    base = f"/runs/{run}"
    return {
        "list of runs": ["/", "/?q=long&sort=cost"],
        "run, a page of its steps": [f"{base}?page={n}" for n in (1, 2, 100)],
        "run, only what was kept": [f"{base}?show=kept"],
        "step": [f"{base}/steps/{n}" for n in at],
        "cases": [f"{base}/cases?show=all", f"{base}/cases?show=kept"],
        "cases that broke": [f"{base}/cases?show=all&only=broke&before={steps // 2}"],
        "a cell with its trace": [f"{base}/steps/{n}/cases/case-1" for n in at],
        "numbers": [f"{base}/numbers"],
        "compare": [f"/compare?run={run}&run=short"],
    }


def measure(home: Path, steps: int) -> tuple[Table, float, float, float]:
    firsts: list[float] = []
    for _ in range(3):
        served = Served(home)
        firsts.append(served.get("/runs/long"))
        served.close()
    # with no index of runs, of steps or of blobs to begin with it takes longer, and is shown apart
    served = Served(home)
    rows = [
        ["run, the first view of a fresh server", f"{median(firsts):.2f}", f"{max(firsts):.2f}"]
    ]
    worst = 0.0
    for name, paths in clicks("long", steps).items():
        served.get(paths[0])
        took = [served.get(path) for path in paths for _ in range(3)]
        worst = max(worst, *took)
        rows.append([name, f"{median(took):.3f}", f"{max(took):.3f}"])
    memory = served.megabytes
    served.close()
    return Table("Pages", ("page", "s, median", "s, worst"), rows), max(firsts), worst, memory


def list_many(folder: Path, runs: int) -> list[list[str]]:
    """The list of very many runs: read for the first time, and known."""
    home = folder / "many" / ".kept"
    make_run(home / "runs" / "20260101-000000-0", 5, 4)
    for number in range(1, runs):
        copied = home / "runs" / f"20260101-{number:06}-0"
        shutil.copytree(home / "runs" / "20260101-000000-0", copied)
    served = Served(home)
    first, known = served.get("/"), [served.get(path) for path in ("/", "/?q=42", "/?sort=cost")]
    served.close()
    return [
        [f"list of {runs:,} runs that nobody has listed before", f"{first:.2f}", f"{first:.2f}"],
        [f"list of {runs:,} runs", f"{median(known):.3f}", f"{max(known):.3f}"],
    ]


def timed(do: Callable[[], None]) -> float:
    began = time.perf_counter()
    do()
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="a million rollouts")
    parser.add_argument("--quick", action="store_true", help="a small run, to see that it works")
    parser.add_argument("--out", type=Path, default=None)
    given = parser.parse_args()
    steps, each = (200, 20) if given.quick else (10_000, 100 if given.full else 20)
    with scratch() as folder:
        home = folder / ".kept"
        took = timed(lambda: make_run(home / "runs" / "long", steps, each))
        make_run(home / "runs" / "short", 50, 20)
        sizes = {f.name: f.stat().st_size / 1e6 for f in (home / "runs" / "long").iterdir()}
        print(f"made {steps:,} steps, {steps * each:,} rollouts in {took:.0f} s", file=sys.stderr)
        table, first, worst, memory = measure(home, steps)
        many = list_many(folder, 50 if given.quick else 2_000)
    files = Table(
        "Files", ("file", "MB"), [[name, f"{size:.1f}"] for name, size in sorted(sizes.items())]
    )
    table = replace(table, rows=[*table.rows, *many])
    goals = (
        Goal(f"first view in {FIRST_GOAL} s", f"{first:.2f} s", first <= FIRST_GOAL),
        Goal(f"any click in {CLICK_GOAL} s", f"{worst:.3f} s at worst", worst <= CLICK_GOAL),
        Goal(f"server within {MEMORY_GOAL:.0f} MB", f"{memory:.0f} MB", memory <= MEMORY_GOAL),
    )
    raw = {"steps": steps, "rollouts": steps * each, "first": first, "click": worst, "mb": memory}
    head = f"`kept view` over a run of {steps:,} steps and {steps * each:,} rollouts"
    name = "view_full" if given.full else "view"
    usual = None if given.quick else RESULTS
    show(Report(name, head, (goals_table(goals), table, files), raw), given.out or usual)


if __name__ == "__main__":
    main()
