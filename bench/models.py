"""What a call to a model costs: calls a second and processor time a call, beside the openai SDK.

Run it as `.venv/bin/python -m bench.models [--quick] [--no-openai] [--out FOLDER]`. All arms call
the same server on loopback, whose replies take 100 ms. It writes its results to `bench/results`;
with `--quick` only where it is told to.
"""

import argparse
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench import peer
from bench.arms.model_server import SECONDS
from bench.harness import ROOT, Arm, as_json, cpu_each, ratio, run_rounds, spread
from bench.peer import openai_python
from bench.reading import Order, Reading
from bench.report import RESULTS, Goal, Report, Table, goals_table, show

KEPT, BARE, OPENAI = "bench.arms.call_kept", "bench.arms.call_bare", "bench.arms.call_openai"

BUSY_GOAL = 0.9
"""Share of the calls a second that the server's 100 ms allow, up to `BUSY_AT` in flight."""
BUSY_AT = 64
CPU_GOAL = 1000.0
"""Microseconds of processor time a call."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is run."""

    in_flight: tuple[int, ...] = (16, 64, 256)
    seconds: float = 3.0
    repeats: int = 3


QUICK = Sizes((16,), 1.0, 1)


@contextmanager
def server() -> Generator[str]:
    """A server in a process of its own; where it is."""
    command = [sys.executable, "-m", "bench.arms.model_server"]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.stdin.close()


def arms(order: Order, openai: str | None) -> list[Arm]:
    def one(name: str, module: str, task: str = "", python: str = sys.executable) -> Arm:
        told = Order(task, seconds=order.seconds, workers=order.workers, url=order.url)
        return Arm(name, module, told, python)

    found = [
        one("kept", KEPT),
        one("kept, streamed", KEPT, "streamed"),
        one("kept, messages of Anthropic", KEPT, "anthropic"),
        one("kept, journalled", KEPT, "journalled"),
        one("bare aiohttp", BARE),
    ]
    if openai:
        found += [
            one("openai SDK", OPENAI, "httpx", openai),
            one("openai SDK on aiohttp", OPENAI, "aiohttp", openai),
        ]
    return found


def rates(readings: Sequence[Reading]) -> list[float]:
    """Calls a second, round by round."""
    return [reading.rollouts / reading.wall for reading in readings]


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.models", description="What a call costs.")
    parser.add_argument("--quick", action="store_true", help="less of everything: does it run?")
    parser.add_argument("--no-openai", action="store_true", help="Kept and bare aiohttp only")
    parser.add_argument("--out", type=Path, help="where the results go")
    given = parser.parse_args()
    sizes = QUICK if given.quick else Sizes()
    openai = None if given.no_openai else openai_python()
    rows: list[tuple[str, ...]] = []
    goals: list[Goal] = []
    raw: dict[str, object] = {}
    for count in sizes.in_flight:
        with server() as url:
            made = arms(Order("", seconds=sizes.seconds, workers=count, url=url), openai)
            found = run_rounds(made, sizes.repeats)
        raw[f"{count} in flight"] = as_json(found)
        rows += table_rows(count, made, found)
        goals += goals_of(count, found["kept"])
    head = ("in flight", "arm", "calls/s", "of ideal", "µs CPU a call", "kept against it")
    note = (
        f"Every reply takes {SECONDS * 1000:g} ms; requests of 1.8 kB, replies of 0.5 kB. Server "
        "and client share the machine's cores, so at 256 in flight the server is busy too. "
        "Processor time of the calling process, after a warm-up; median (least–greatest)."
    )
    tables = [goals_table(goals), Table("Calls", head, rows, note)]
    folder = given.out or (None if given.quick else RESULTS)
    report = Report("models", "Calls to models", tables, {"readings": raw})
    show(report, folder, openai=peer.OPENAI if openai else "not measured")


def table_rows(
    count: int, made: Sequence[Arm], found: dict[str, list[Reading]]
) -> list[tuple[str, ...]]:
    ideal, kept = count / SECONDS, cpu_each(found["kept"])
    rows: list[tuple[str, ...]] = []
    for arm in made:
        read = found[arm.name]
        cpu = cpu_each(read)
        share = f"{median(rates(read)) / ideal:.0%}"
        against = "" if arm.name == "kept" else ratio(kept, cpu)
        rows.append((f"{count}", arm.name, spread(rates(read)), share, spread(cpu), against))
    return rows


def goals_of(count: int, readings: Sequence[Reading]) -> list[Goal]:
    each = median(cpu_each(readings))
    goals = [
        Goal(f"≤ {CPU_GOAL:g} µs a call at {count}", f"{each:.0f} µs", each <= CPU_GOAL),
    ]
    if count <= BUSY_AT:
        share = median(rates(readings)) * SECONDS / count
        what = f"≥ {BUSY_GOAL:.0%} of ideal at {count} in flight"
        goals.append(Goal(what, f"{share:.1%}", share >= BUSY_GOAL))
    return goals


if __name__ == "__main__":
    main()
