"""One epoch of `kept train` as a command, beside what the original was seen to take."""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from bench.harness import say
from bench.report import RESULTS, Goal, Report, Table, goals_table, show
from bench.train.server import SECONDS
from kept.core.words import count

AT_ONCE, BATCH = 24, 40
SIZES, QUICK = (400, 200, 1400), (80, 40, 40)
THEIRS = ("5,877", "32 %", "4.6", "17,524 in all")
"""What SkillOpt took for the same, by research/skillopt.md, section 7."""


class Took(NamedTuple):
    """What a run took."""

    calls: int
    at_once: int
    seconds: float
    cpu: float
    """Seconds of processor time, user and system."""
    files: int
    most_files: int
    """Of one step."""

    @property
    def ideal(self) -> float:
        """Share of the calls a second that so many in flight could make."""
        return self.calls * SECONDS / AT_ONCE / self.seconds


def run(gate: str, sizes: tuple[int, int, int], at_once: int = 1) -> Took:
    """One epoch in a folder of its own."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part, start, size in zip(
            ("train", "val", "test"), (0, sizes[0], sizes[0] + sizes[1]), sizes, strict=True
        ):
            rows = [_row(n) for n in range(start, start + size)]
            (folder / "data" / part).mkdir(parents=True)
            (folder / "data" / part / "items.json").write_text(json.dumps(rows))
        command = [sys.executable, "-m", "bench.train.server", str(SECONDS)]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as server:
            assert server.stdin is not None and server.stdout is not None
            url = server.stdout.readline().strip()
            before, began = _cpu(), time.monotonic()
            env = {"PATH": os.defpath, "HOME": name}
            words = [
                sys.executable,
                "-m",
                "kept",
                *_words(url, gate),
                f"train.steps_at_once={at_once}",
            ]
            done = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True)
            seconds, cpu = time.monotonic() - began, _cpu() - before
            assert done.returncode == 0, done.stderr
            server.stdin.close()
            calls, at_once = map(int, server.stdout.read().split())
        out = folder / "out"
        files = sum(path.is_file() for path in out.rglob("*"))
        steps = [sum(p.is_file() for p in one.rglob("*")) for one in (out / "steps").iterdir()]
        return Took(calls, at_once, seconds, cpu, files, max(steps))


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _row(n: int) -> dict[str, object]:
    told = {"question": f"What is number {n}?", "answers": [f"word{n}"]}
    return {"id": f"q{n}", "context": f"[DOC] Number {n} is called word{n}.", **told}


def _words(url: str, gate: str) -> list[str]:
    at = f"provider: openai_compatible, base_url: '{url}', cache: false"
    words = ["train", "--config", "configs/searchqa/default.yaml", "-q", "--out_root", "out"]
    words += ["--split_mode", "split_dir", "--split_dir", "data", "--num_epochs", "1"]
    words += ["--batch_size", str(BATCH), "--workers", str(AT_ONCE), "--cfg-options"]
    models = (("optimizer", "teacher"), ("target", "student"))
    words += [f"model.{ours}={{model: {name}, {at}}}" for ours, name in models]
    return [*words, f"evaluation.gate={gate}"]


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.train", description="An epoch of training.")
    parser.add_argument("--quick", action="store_true", help="few cases: does it run?")
    parser.add_argument("--out", type=Path, help="folder for the results")
    given = parser.parse_args()
    sizes = QUICK if given.quick else SIZES
    found: dict[str, Took] = {}
    for gate, at_once in (("selection", 1), ("selection", 2), ("race", 1), ("race", 2)):
        name = f"{gate}, {count(at_once, 'step')} at once"
        say(f"{name} …")
        found[name] = run(gate, sizes, at_once)
    rows = [
        (
            f"kept, {name}",
            f"{one.calls:,}",
            f"{one.ideal:.0%}",
            f"{1000 * one.cpu / one.calls:.2f}",
            f"{one.files} in all, {one.most_files} a step at most",
            f"{one.seconds:.1f} s",
            str(one.at_once),
        )
        for name, one in found.items()
    ]
    rows.append(("SkillOpt, as it was measured before", *THEIRS, "38.2 s", "24"))
    head = ("arm", "calls", "of ideal", "ms CPU a call", "files", "wall", "at once")
    note = (
        "The goals are those of the second arm. "
        f"{'/'.join(map(str, sizes))} cases of SearchQA's shape, one epoch, batches of {BATCH}, "
        f"{SECONDS * 1000:g} ms a reply, {AT_ONCE} in flight. Ideal is that many in flight without "
        "a pause. Processor time is that of the whole command, its start included. The last row is "
        "from another day on this machine, and is read as an order of size."
    )
    ours = found["selection, 2 steps at once"]
    whole = not given.quick
    goals = [
        Goal("no more calls than 5,877", f"{ours.calls:,}", ours.calls <= 5877 if whole else None),
        Goal("≥ 80 % of ideal", f"{ours.ideal:.0%}", ours.ideal >= 0.8 if whole else None),
        Goal("≤ 1 ms CPU a call", rows[1][3], ours.cpu / ours.calls <= 0.001 if whole else None),
        Goal("≤ 15 files a step", str(ours.most_files), ours.most_files <= 15),
    ]
    report = Report(
        "train",
        "An epoch of training",
        [goals_table(goals), Table("What it took", head, rows, note)],
        {"runs": {name: one._asdict() for name, one in found.items()}},
    )
    show(report, given.out or (None if given.quick else RESULTS))


if __name__ == "__main__":
    main()
