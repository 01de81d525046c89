"""What refining a finished run costs, beside awp-agents, whose loop it is: three iterations.

Run it as `.venv/bin/python -m bench.refine [--repeats N] [--no-peer] [--out FOLDER]`. Both refine a
copy of one run folder, with models on loopback that answer at once from one script, as in
`bench.agent_run`; a critic always finds one more thing, so that all three iterations are run.
"""

import argparse
import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.agent_run import KEPT, PEER, TASK, TEXT, Arm, Took, answer, rows_of, took_by
from bench.harness import say
from bench.peer import AWP, awp_python, kept_program
from bench.report import RESULTS, Report, Table, show
from kept.core.llm import ModelReply
from kept.testing.server import ModelServer, Seen

ITERATIONS = 3
SEED = "seed"
DEFECT = {
    "category": "incomplete",
    "location": "report.md",
    "description": "the sums of the months are missing",
    "severity": "warning",
}
LEFT_BEHIND = Path(tempfile.gettempdir()) / "awp-experiments"
"""Where the peer keeps its iterations, wherever it is told to work."""


def write_seed(folder: Path) -> None:
    """A finished run as both can read it: the peer wants its FINAL beside it."""
    seed = folder / SEED
    completion = {
        "run_id": "seed_1",
        "status": "complete",
        "task": TASK,
        "critique": {"score": 0.6, "defects": [{"summary": "too short", "severity": "high"}]},
        "eval": {"score": 0.8},
        "final_budget": {
            "loops": {"used": 6, "max": 24},
            "workers": {"spawned": 2, "max": 20},
            "tokens": {"consumed": 9000, "max": 400_000},
            "tool_calls": {"used": 4, "max": 200},
            "wall_time": {"elapsed_s": 300, "max_s": 600},
            "budget_remaining_pct": 50,
        },
    }
    critique = {"critiques": [{"worker_id": "w1", "score": 0.6, "defects": [DEFECT]}]}
    files = {
        "run_completion.json": json.dumps(completion),
        "iterations/001/critique.json": json.dumps(critique),
        "FINAL/report.md": TEXT.partition("\n\n")[0] + "\n",
    }
    for name, text in files.items():
        (seed / name).parent.mkdir(parents=True, exist_ok=True)
        (seed / name).write_text(text)


def never_content(seen: Seen) -> str | ModelReply:
    """As in an agent run, and a critic who always finds something.

    Its scores differ by a little, for two equal losses in a row end a session of Kept.
    """
    told = seen.lines[0].text
    if "ritic" in told[:60] or told.startswith("You judge"):
        score = 0.9 + seen.number % 1000 / 1e5
        return json.dumps({"score": score, "defects": [DEFECT], "summary": "nearly"})
    return answer(seen)


def arms_of(python: str | None) -> list[Arm]:
    kept, words = kept_program(), ("refine", SEED, "--iterations", str(ITERATIONS))
    mine = (kept, *words, "--model", "openai_compatible/m", "--json", "-q")
    found = [Arm(KEPT, (kept, "refine", "--help"), mine)]
    if python is not None:
        script = str(Path(python).with_name("awp"))
        theirs = (script, *words, "--model", "openai/m", "--worker-model", "openai/m")
        found.append(Arm(PEER, (script, "refine", "--help"), theirs))
    return found


def measure(arms: Sequence[Arm], repeats: int) -> tuple[dict[str, list[Took]], dict[str, int]]:
    """In rounds, each once a round; and how many iterations each had, by what it wrote."""
    took: dict[str, list[Took]] = {f"{arm.name} run": [] for arm in arms}
    ran: dict[str, int] = {}
    before = set(LEFT_BEHIND.glob("*"))
    with ModelServer(never_content) as server:
        for number in range(repeats + 1):
            for arm in arms:
                say(f"{arm.name} ({number} of {repeats})")
                one = took_by(arm.run, server, write_seed, _iterations)
                ran[arm.name] = one.iterations
                if number:
                    took[f"{arm.name} run"].append(one)
    for folder in set(LEFT_BEHIND.glob("*")) - before:
        shutil.rmtree(folder, ignore_errors=True)
    return took, ran


def _iterations(folder: Path) -> tuple[int, str]:
    """How many iterations a session tells of, and how it ended."""
    paths = list((folder / SEED / "refinement_sessions").glob("*.json"))
    if not paths:
        return 0, "no session"
    told = json.loads(paths[0].read_text())
    rows = told["iterations"]
    return len(rows), f"{len(rows)} iterations, {told['stop_reason']}"


def tables_of(took: Mapping[str, Sequence[Took]], ran: Mapping[str, int], rounds: int) -> Table:
    head = ("command", "CPU ms", "wall ms", "requests", "ended")
    whole = all(count == ITERATIONS for count in ran.values())
    note = (
        f"Median (least–greatest) of {rounds} rounds, {ITERATIONS} iterations each"
        + ("." if whole else f", but not for all: {dict(ran)}.")
        + " Kept journals every reply and writes the session after each iteration; the peer asks "
        "a validator besides, and writes the session at the end."
    )
    return Table("Three iterations", head, rows_of(took, "run"), note)


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.refine", description="Three iterations.")
    parser.add_argument("--repeats", type=int, default=5, help="rounds (default: 5)")
    parser.add_argument("--no-peer", action="store_true", help="Kept only")
    parser.add_argument("--out", type=Path, help="where the results go (default: bench/results)")
    options = parser.parse_args()
    python = None if options.no_peer else awp_python()
    took, ran = measure(arms_of(python), options.repeats)
    raw = {"took": {name: [one._asdict() for one in rows] for name, rows in took.items()}}
    table = tables_of(took, ran, options.repeats)
    report = Report("refine", "Refining a finished run", [table], {**raw, "iterations": ran})
    show(report, options.out or RESULTS, peer=f"awp-agents {AWP}" if python else "left out")


if __name__ == "__main__":
    main()
