"""One epoch of `kept train` as a command, beside the original and beside a bare client."""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from bench import peer
from bench.harness import ROOT, say
from bench.report import RESULTS, Goal, Report, Table, goals_table, show
from bench.train import original
from bench.train.schedule import busy
from bench.train.shape import AT_ONCE, BATCH, SECONDS, ideal, write_cases
from kept.core.text import count

SIZES, QUICK = (400, 200, 1400), (80, 40, 40)
ARMS = (("selection", 1), ("selection", 2), ("race", 1), ("race", 2))
OURS = "selection, 2 steps at once"
"""The arm that goals are set for."""
ROUNDS = 3
"""Of that arm and of the bare client: what else the machine does can only take from either."""
THEIRS = ("5,877", "32 %", "4.6", "17,524 in all", "45.3 s", "24")
"""What SkillOpt took for the same, by research/skillopt.md, section 7."""

Words = Callable[[Path, str], Sequence[str]]
"""A command, for a folder with the cases in `data` and the address of the server."""


class Took(NamedTuple):
    """What a run took."""

    calls: int
    at_once: int
    seconds: float
    """Of the whole command."""
    span: float
    """Seconds from the first request to the last reply."""
    cpu: float
    """Seconds of processor time, user and system, of the whole command."""
    files: int = 0
    most_files: int = 0
    """Of one step."""

    @property
    def ideal(self) -> float:
        return ideal(self.calls, self.span)

    def row(self, name: str) -> tuple[str, ...]:
        files = f"{self.files:,} in all, {self.most_files:,} a step at most" if self.files else ""
        return (
            name,
            f"{self.calls:,}",
            f"{self.ideal:.0%}",
            f"{1000 * self.cpu / self.calls:.2f}",
            files,
            f"{self.seconds:.1f} s",
            str(self.at_once),
        )


def run(words: Words, sizes: tuple[int, int, int]) -> Took:
    """A command in a folder of its own, and all that it made there."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_cases(folder / "data", sizes)
        command = [sys.executable, "-m", "bench.train.server", str(SECONDS)]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as server:
            assert server.stdin is not None and server.stdout is not None
            told = list(words(folder, server.stdout.readline().strip()))
            before, began = _cpu(), time.monotonic()
            env = {"PATH": os.defpath, "HOME": name, "PYTHONPATH": str(ROOT)}
            done = subprocess.run(told, cwd=folder, env=env, capture_output=True, text=True)
            seconds, cpu = time.monotonic() - began, _cpu() - before
            server.stdin.close()
            calls, at_once, span = server.stdout.read().split()
            assert done.returncode == 0, done.stderr
        steps = [_files(one) for one in folder.glob("out/steps/*")]
        files = _files(folder / "out")
        most = max(steps, default=0)
        return Took(int(calls), int(at_once), seconds, float(span), cpu, files, most)


def best(words: Words, sizes: tuple[int, int, int], rounds: int) -> Took:
    """Of so many runs, the one that came nearest to the ideal."""
    return max((run(words, sizes) for _ in range(rounds)), key=lambda took: took.ideal)


def _files(folder: Path) -> int:
    return sum(path.is_file() for path in folder.rglob("*"))


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def kept(gate: str, at_once: int) -> Words:
    def words(folder: Path, url: str) -> list[str]:
        at = f"provider: openai_compatible, base_url: '{url}', cache: false"
        told = ["train", "--config", "configs/searchqa/default.yaml", "-q", "--out_root", "out"]
        told += ["--split_mode", "split_dir", "--split_dir", "data", "--num_epochs", "1"]
        told += ["--batch_size", str(BATCH), "--workers", str(AT_ONCE), "--cfg-options"]
        models = (("optimizer", "teacher"), ("target", "student"))
        told += [f"model.{ours}={{model: {name}, {at}}}" for ours, name in models]
        told += [f"evaluation.gate={gate}", f"train.steps_at_once={at_once}"]
        return [sys.executable, "-m", "kept", *told]

    return words


def bare(calls: int) -> Words:
    return lambda _, url: [sys.executable, "-m", "bench.train.bare", url, str(calls)]


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.train", description="An epoch of training.")
    parser.add_argument("--quick", action="store_true", help="few cases: does it run?")
    parser.add_argument("--no-skillopt", action="store_true", help="without the original")
    parser.add_argument("--out", type=Path, help="folder for the results")
    given = parser.parse_args()
    sizes = QUICK if given.quick else SIZES
    rounds = 1 if given.quick else ROUNDS
    found: dict[str, Took] = {}
    for gate, at_once in ARMS:
        name = f"{gate}, {count(at_once, 'step')} at once"
        say(f"{name} …")
        found[name] = best(kept(gate, at_once), sizes, rounds if name == OURS else 1)
    ours = found[OURS]
    say("a bare client …")
    floor = best(bare(ours.calls), sizes, rounds)
    python = None if given.quick or given.no_skillopt else peer.skillopt_python()
    theirs = None
    if python is not None:
        say("SkillOpt …")
        theirs = run(lambda folder, url: original.words(python, folder, url, sizes[0]), sizes)
    tables = [
        goals_table(goals(ours, theirs, whole=not given.quick)),
        costs(found, floor, theirs, sizes),
        waits(sizes),
    ]
    took = {**found, "a bare client": floor} | ({"SkillOpt": theirs} if theirs else {})
    raw = {"runs": {name: one._asdict() for name, one in took.items()}}
    report = Report("train", "An epoch of training", tables, raw)
    version = peer.SKILLOPT if theirs else "not measured"
    show(report, given.out or (None if given.quick else RESULTS), skillopt=version)


def goals(ours: Took, theirs: Took | None, *, whole: bool) -> list[Goal]:
    most = theirs.calls if theirs else 5877
    each = ours.cpu / ours.calls
    return [
        Goal(
            f"no more calls than SkillOpt's {most:,}",
            f"{ours.calls:,}",
            ours.calls <= most if whole else None,
        ),
        Goal("≥ 80 % of ideal", f"{ours.ideal:.0%}", ours.ideal >= 0.8 if whole else None),
        Goal("≤ 1.5 ms CPU a call", f"{1000 * each:.2f}", each <= 0.0015 if whole else None),
        Goal("≤ 15 files a step", str(ours.most_files), ours.most_files <= 15),
    ]


def costs(
    found: dict[str, Took], floor: Took, theirs: Took | None, sizes: tuple[int, int, int]
) -> Table:
    rows = [one.row(f"kept, {name}") for name, one in found.items()]
    rows.append(floor.row("aiohttp and nothing else, as many calls"))
    if theirs:
        rows.append(theirs.row(f"SkillOpt {peer.SKILLOPT}, its prompts lent by the bench"))
    rows.append(("SkillOpt of its repository, as it was measured before", *THEIRS))
    head = ("arm", "calls", "of ideal", "ms CPU a call", "files", "whole command", "at once")
    note = (
        f"The goals are those of the second arm. {'/'.join(map(str, sizes))} cases of SearchQA's "
        f"shape, one epoch, batches of {BATCH}, {SECONDS * 1000:g} ms a reply, {AT_ONCE} in "
        "flight. Ideal is that many in flight without a pause from the first request to the last "
        "reply; the start of a command is in its own column and in its processor time. Server "
        "and client share the machine's cores with whatever else runs: the bare client says what "
        f"was to be had in these minutes; both it and the second arm are the best of {ROUNDS} "
        "runs. Kept's teacher calls come on top of the rollouts in "
        "flight. The last row is from another day, and is read as an order of size."
    )
    return Table("What it took", head, rows, note)


def waits(sizes: tuple[int, int, int]) -> Table:
    rows: list[tuple[str, ...]] = []
    for gate, at_once in ARMS:
        calls, of_ideal = busy(gate, at_once, sizes)
        rows.append((f"{gate}, {count(at_once, 'step')} at once", f"{calls:,}", f"{of_ideal:.0%}"))
    note = (
        "The same epoch on a clock that moves only when everybody waits, so that no machine is in "
        "it: what is lost here is what stages wait for each other, and the rest is processor time."
    )
    return Table("What stages leave of the ideal", ("arm", "calls", "of ideal"), rows, note)


if __name__ == "__main__":
    main()
