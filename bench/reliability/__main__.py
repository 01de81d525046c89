"""Kill and damage runs of Kept, Optuna and gepa in the same way, and count what comes of it."""

import argparse
import json
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import peer
from bench.harness import ROOT, ArmFailed, say, scratch
from bench.reliability.server import LATENCY_SECONDS, CallServer
from bench.reliability.world import CASES, PROGRESS, STEPS, WORKERS
from bench.report import RESULTS, Report, Table, show
from kept import __version__

READ_SECONDS = 0.05
"""A reply that was sent this long before a kill counts as read."""

TIMEOUT_SECONDS = 120

ENDS = ("same", "best", "other", "error")
"""Of a run that was killed, in the order of their columns."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is done to each arm."""

    kills: int
    flips: int
    cuts: int


WHOLE, QUICK = Sizes(20, 40, 20), Sizes(2, 3, 2)


@dataclass(frozen=True, slots=True)
class Arm:
    """One system."""

    name: str
    module: str
    python: str
    files: tuple[str, ...]
    """The files that it reads when it resumes, which are damaged; exports are left out."""

    def command(self, port: int, *folders: str) -> list[str]:
        return [self.python, "-m", f"bench.reliability.{self.module}", str(port), *folders]


@dataclass(frozen=True, slots=True)
class Whole:
    """The run that nothing disturbs."""

    folder: Path
    figures: Mapping[str, Any]
    calls: Counter[str]


@dataclass(frozen=True, slots=True)
class Killed:
    """One run that was killed once and resumed."""

    end: str
    """`same`, `best` (the same best, other candidates beside it), `other` or `error`."""
    repeated: int
    """Calls whose reply had been read, and that were made again."""
    lost: int
    """Results that were reported before the kill, and that the resumed run does not have."""
    error: str = ""


@dataclass(frozen=True, slots=True)
class Damaged:
    """One finished run with a damaged file, opened again."""

    damage: str
    file: str
    end: str
    """`same`, `other`, `named` (an error that names the file) or `error` (any other)."""
    calls: int
    """Calls that were made again."""
    doctor: bool
    """True where `kept doctor` reports it."""
    error: str = ""


def arms() -> Iterator[Arm]:
    store = ("journal.jsonl", "rollouts.jsonl", "blobs.pack", "blobs.idx", "steps.idx")
    yield Arm(f"kept {__version__}", "arm_kept", sys.executable, store)
    if (python := peer.optuna_python()) is not None:
        yield Arm(f"Optuna {peer.OPTUNA}, journal", "arm_optuna", python, ("journal.log",))
    if (python := peer.gepa_python()) is not None:
        yield Arm(f"gepa {peer.VERSION}, run_dir", "arm_gepa", python, ("gepa_state.bin",))


def start(arm: Arm, port: int, folder: Path) -> "subprocess.Popen[str]":
    folder.parent.mkdir(parents=True, exist_ok=True)
    pipe = subprocess.PIPE
    command = arm.command(port, str(folder))
    return subprocess.Popen(command, cwd=ROOT, stdout=pipe, stderr=pipe, text=True)


def run_whole(arm: Arm, server: CallServer, folder: Path) -> Whole:
    before = len(server.replies)
    process = start(arm, server.port, folder)
    out, err = process.communicate(timeout=TIMEOUT_SECONDS)
    if process.returncode:
        raise ArmFailed(f"`{arm.name}` ended with {process.returncode}\n{err}")
    calls = Counter(reply.path for reply in server.replies[before:])
    return Whole(folder, json.loads(out), calls)


def kill(arm: Arm, whole: Whole, server: CallServer, folder: Path, chance: random.Random) -> Killed:
    """Kill a run after a random number of replies, and resume it."""
    before = len(server.replies)
    replies = before + chance.randrange(1, whole.calls.total())
    process = start(arm, server.port, folder)
    while process.poll() is None and len(server.replies) < replies:
        time.sleep(0.001)
    time.sleep(chance.uniform(0, 2 * LATENCY_SECONDS))
    killed = time.monotonic()
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=TIMEOUT_SECONDS)
    if process.returncode != -signal.SIGKILL:
        shutil.rmtree(folder.parent)
        return kill(arm, whole, server, folder, chance)
    path = folder.parent / PROGRESS
    reported: list[Any] = [json.loads(line) for line in _whole_lines(path)]
    process = start(arm, server.port, folder)
    out, err = process.communicate(timeout=TIMEOUT_SECONDS)
    repeated = _repeated(server, before, killed, whole.calls)
    if process.returncode:
        return Killed("error", repeated, 0, err.strip().splitlines()[-1])
    figures = json.loads(out)
    lost = sum(row not in figures["finished"] for row in reported)
    return Killed(_end(figures, whole), repeated, lost)


def _end(figures: Mapping[str, Any], whole: Whole) -> str:
    if figures == whole.figures:
        return "same"
    return "best" if figures["best"] == whole.figures["best"] else "other"


def _whole_lines(path: Path) -> list[str]:
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return [line for line in text.splitlines(keepends=True) if line.endswith("\n")]


def _repeated(server: CallServer, before: int, killed: float, usual: Counter[str]) -> int:
    """Count calls beyond those of an undisturbed run, if their reply had been read."""
    asked, read = Counter[str](), Counter[str]()
    for path, sent in server.replies[before:]:
        asked[path] += 1
        read[path] += sent < killed - READ_SECONDS
    return sum(min(max(0, n - max(1, usual[path])), read[path]) for path, n in asked.items())


def damage_runs(
    arm: Arm, whole: Whole, server: CallServer, folder: Path, sizes: Sizes
) -> Iterator[Damaged]:
    """Damage copies of the finished run, one file in one place each, and open them again."""
    made: list[tuple[str, str, Path]] = []
    # the first copy is sound, to see that nothing is found where nothing is wrong
    for number, kind in enumerate(["none", *["flip"] * sizes.flips, *["cut"] * sizes.cuts]):
        copy = folder / str(number) / whole.folder.name
        shutil.copytree(whole.folder.parent, copy.parent, symlinks=True)
        chance = random.Random(f"{kind} {number}")
        file = damage(arm, kind, copy, chance) if number else ""
        made.append((kind, file, copy))
    command = arm.command(server.port, "--each", *(str(copy) for _, _, copy in made))
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        before = len(server.replies)
        for (kind, file, _), line in zip(made, process.stdout, strict=True):
            calls, before = len(server.replies) - before, len(server.replies)
            told: dict[str, Any] = json.loads(line)
            found = told.get("figures")
            error = str(told.get("error", ""))
            if kind == "none":
                assert found == whole.figures and not told["found"], told
                continue
            named = "named" if file in error else "error"
            end = named if error else "same" if found == whole.figures else "other"
            yield Damaged(kind, file, end, calls, bool(told["found"]), error[:300])
    if process.returncode:
        raise ArmFailed(f"`{arm.name}` ended with {process.returncode} among damaged runs")


def damage(arm: Arm, kind: str, run: Path, chance: random.Random) -> str:
    """Flip one bit of one file, or cut the file; return its name."""
    places = [path for path in sorted(run.rglob("*")) if path.name in arm.files]
    path = places[int(chance.random() * len(places))]
    data = bytearray(path.read_bytes())
    at = int(chance.random() * len(data))
    if kind == "flip":
        data[at] ^= 1 << chance.randrange(8)
    else:
        del data[at:]
    path.write_bytes(data)
    return path.name


def kill_table(found: Mapping[str, Sequence[Killed]]) -> Table:
    head = (
        *("system", "kills", "same end", "same best only", "another best", "error"),
        *("calls repeated a kill", "results lost"),
    )
    rows = [
        (
            name,
            str(len(runs)),
            *(
                str(sum(run.end == end for run in runs))
                for end in ("same", "best", "other", "error")
            ),
            f"{sum(run.repeated for run in runs) / len(runs):.1f}",
            str(sum(run.lost for run in runs)),
        )
        for name, runs in found.items()
    ]
    note = (
        f"One kill -9 a run, after a random number of its replies, then the documented way to "
        f"resume. A run is {STEPS} proposals on {CASES} cases, {WORKERS} calls at a time. Repeated "
        "calls are those whose reply had been read. A lost result is a candidate with its score "
        "that the process had reported as finished, and that the resumed run does not have."
    )
    return Table("kill -9", head, rows, note)


def damage_table(title: str, kind: str, found: Mapping[str, Sequence[Damaged]], note: str) -> Table:
    head = (
        *("system", "runs", "same result", "error that names the file", "other error"),
        *("another result, no error", "calls made again a run"),
    )
    rows: list[tuple[str, ...]] = []
    for name, all_of in found.items():
        runs = [run for run in all_of if run.damage == kind]
        ends = ("same", "named", "error", "other")
        counts = [str(sum(run.end == end for run in runs)) for end in ends]
        again = sum(run.calls for run in runs) / len(runs)
        rows.append((name, str(len(runs)), *counts, f"{again:.1f}"))
    return Table(title, head, rows, note)


def doctor_note(found: Mapping[str, Sequence[Damaged]]) -> str:
    """Say what Kept's own check of a run reports of the damage that changed nothing."""
    runs = [run for name, runs in found.items() if name.startswith("kept") for run in runs]
    same = [run for run in runs if run.end == "same"]
    files = Counter(run.file for run in same if not run.doctor)
    rest = ", ".join(f"{n} in `{file}`" for file, n in sorted(files.items())) or "none"
    return (
        f"Of the {len(runs)} damaged runs of Kept, {len(same)} come to the same result: the damage "
        f"is in a part that resuming does not read, or is made good. `kept doctor RUN` reports "
        f"{sum(run.doctor for run in same)} of these; not reported: {rest}."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="see whether it runs")
    parser.add_argument("--arms", default="", help="names to choose, with commas")
    parser.add_argument("--out", type=Path, help="folder of the results")
    asked = parser.parse_args()
    sizes = QUICK if asked.quick else WHOLE
    names: str = asked.arms
    wanted = tuple(name for name in names.split(",") if name)
    chosen = [arm for arm in arms() if not wanted or arm.module.endswith(wanted)]
    killed: dict[str, list[Killed]] = {}
    damaged: dict[str, list[Damaged]] = {}
    with CallServer() as server, scratch() as folder:
        for arm in chosen:
            place = folder / arm.module
            whole = run_whole(arm, server, place / "whole" / "run")
            killed[arm.name] = []
            for number in range(sizes.kills):
                chance = random.Random(f"kill {number}")
                at = place / f"kill-{number}" / "run"
                killed[arm.name].append(one := kill(arm, whole, server, at, chance))
                say(f"{arm.name}, kill {number + 1} of {sizes.kills}: {one.end} {one.error}")
            damaged[arm.name] = list(damage_runs(arm, whole, server, place / "damaged", sizes))
            say(f"{arm.name}: {len(damaged[arm.name])} damaged runs were opened")
    tables = [
        kill_table(killed),
        damage_table("One flipped bit", "flip", damaged, _files(chosen)),
        damage_table("A file cut short", "cut", damaged, doctor_note(damaged)),
    ]
    raw = {
        "killed": {name: [_row(one) for one in runs] for name, runs in killed.items()},
        "damaged": {name: [_row(one) for one in runs] for name, runs in damaged.items()},
    }
    page = Report("reliability", "Kills and damaged files", tables, raw)
    show(page, asked.out or (None if asked.quick or wanted else RESULTS), optuna=peer.OPTUNA)


def _files(chosen: Sequence[Arm]) -> str:
    named = "; ".join(f"{arm.name}: {', '.join(arm.files)}" for arm in chosen)
    return (
        "A finished run with one bit of one file flipped, opened again in the documented way. The "
        f"same result is the best and every score. Files: {named}."
    )


def _row(one: Killed | Damaged) -> dict[str, object]:
    return {name: getattr(one, name) for name in one.__slots__}


if __name__ == "__main__":
    main()
