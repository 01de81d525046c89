"""One run of each kind on the model itself, as a user starts it: `kept optimize`.

Run it as `.venv/bin/python -m bench.real.live [null] [bad-seed] [demo]`; it takes some fifteen
minutes of two idle cores, and `bench.real` shows what it wrote.

Null: one prompt under several names, told apart by a comment that the model does not see. A model
as runner is given the same seed for a case and repeat whoever asks, so that copies would say the
same word for word, and nothing could be kept by mistake. So here a command asks, each time with a
seed that nobody chose.
"""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.harness import say, scratch
from bench.real.bank import prompts, read
from kept.ui.demo import REVIEWS

FILE = Path(__file__).parent.parent / "data" / "live.json"
KEPT = (sys.executable, "-m", "kept")
BUDGET = 1000
"""Rollouts of a run."""
COPIES = 6
NULL = "question"
"""The prompt of the null, for it says the most different things: nearly half of it is wrong."""
SETTINGS = (
    "proposers=[{kind: variants, files: [variants/*]}]",
    f"budget={{max_rollouts: {BUDGET}}}",
    "race=balanced",
)

Row = dict[str, str]


def recorded() -> list[Row]:
    """What was written; nothing where there was no live run yet."""
    return json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else []


def main() -> None:
    """All kinds, or those that are named."""
    kinds = {"null": null, "bad-seed": bad_seed, "demo": demo}
    for name in sys.argv[1:] or kinds:
        say(f"{name}, live")
        with scratch() as folder:
            row = kinds[name](folder)
        say(json.dumps(row))
        others = [one for one in recorded() if one["kind"] != row["kind"]]
        rows = sorted([*others, row], key=lambda one: one["kind"], reverse=True)
        FILE.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def bad_seed(folder: Path) -> Row:
    """From the worst prompt of the bank; the others are proposed, in an order of the demo's own."""
    bank = read()
    texts = prompts()
    worst = min(bank.prompts, key=bank.mean)
    task = task_of(folder, texts[worst], {n: t for n, t in texts.items() if n != worst})
    told = optimize(task)
    best = (Path(told["folder"]) / "best" / "prompt.md").read_text(encoding="utf-8").strip()
    ended = next(name for name, text in texts.items() if text == best)
    return row_of(f"bad seed, `{worst}`", told, f"`{ended}`, {bank.mean(ended):.3f} in the bank")


def null(folder: Path) -> Row:
    """One prompt under several names."""
    text = prompts()[NULL]
    copies = {f"copy-{n}": f"<!-- copy {n} -->\n{text}" for n in range(COPIES)}
    task = task_of(folder, text, copies)
    with served() as url:
        told = optimize(task, *asking(url))
    best = "the seed" if not told["improved"] else "a copy"
    return row_of(f"null, `{NULL}` under {COPIES} other names", told, best)


def asking(url: str) -> tuple[str, str]:
    """Settings by which a command asks the model."""
    command = json.dumps(f"python ask.py {url}")
    return f"runner={{command: {command}}}", "sandbox={network: on}"


def demo(folder: Path) -> Row:
    """`kept demo`, as it comes."""
    told = json.loads(run([*KEPT, "demo", "reviews", "--keep", str(folder), "--json", "--quiet"]))
    return demo_row(told)


def demo_row(told: dict[str, Any]) -> Row:
    best = f"{told['seed']['value']:.3f} → {told['best']['value']:.3f}"
    return row_of("`kept demo`", told, best if told["improved"] else "the seed")


def task_of(folder: Path, seed: str, variants: dict[str, str]) -> Path:
    """The task of the demo with these prompts; its task.yaml."""
    shutil.copytree(REVIEWS, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("variants"))
    places = {folder: seed} | {folder / "variants" / name: variants[name] for name in variants}
    for place, text in places.items():
        place.mkdir(parents=True, exist_ok=True)
        (place / "prompt.md").write_text(text + "\n", encoding="utf-8")
    shutil.copy(Path(__file__).parent / "ask.py", folder)
    return folder / "task.yaml"


def optimize(task: Path, *more: str) -> dict[str, Any]:
    words = [word for setting in (*SETTINGS, *more) for word in ("--set", setting)]
    return json.loads(run([*KEPT, "optimize", str(task), "--json", "--quiet", *words]))


def run(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    return done.stdout


@contextmanager
def served() -> Generator[str]:
    """The address of the model, as long as it is served."""
    command = (*KEPT, "models", "serve", "smollm2", "--port", "0")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip()
        finally:
            server.terminate()


def row_of(kind: str, told: dict[str, Any], best: str) -> Row:
    return {
        "kind": kind,
        "proposals": str(told["proposals"]),
        "keeps": str(told["keeps"]),
        "ends with": best,
        "claim": told["claim"] or "nothing to claim",
        "rollouts": str(told["spend"]["rollouts"]),
        "minutes": f"{told['elapsed'] / 60:.1f}",
        "on": time.strftime("%Y-%m-%d"),
    }


if __name__ == "__main__":
    main()
