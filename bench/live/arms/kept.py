"""Kept, as a user starts it: a task.yaml with the model as runner, and `kept optimize`.

Its proposer is `reflect` as it comes, told the right answers as gepa is; its gate and its split are
the defaults. Its money is its own budget: it stops before the meter would stop it.
"""

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.harness import ROOT
from bench.live.order import WRITING, End, Order, obey, questions

SCORE = f"""import sys

sys.path.insert(0, {str(ROOT)!r})

from bench.live.sets import grade


def score(output, case):
    found, remark = grade(output, case)
    return {{"score": found, "findings": [] if found else [remark]}}
"""


def act(order: Order) -> End:
    folder = Path(order.folder)
    write_task(order, folder)
    command = [sys.executable, "-m", "kept", "optimize", str(folder), "--json", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    told = json.loads(done.stdout)
    short = bool(told["stopped"]) and told["stopped"]["kind"] == "usd"
    if not told["improved"]:
        return End(order.seed, 0.0, short)
    best = (Path(told["folder"]) / "best" / "prompt.md").read_text(encoding="utf-8")
    return End(best.strip(), told["best"]["value"] - told["seed"]["value"], short)


def write_task(order: Order, folder: Path) -> None:
    (folder / "prompt.md").write_text(order.seed + "\n", encoding="utf-8")
    (folder / "score.py").write_text(SCORE, encoding="utf-8")
    lines = [json.dumps(asdict(one)) for one in questions(order)]
    (folder / "cases.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    # JSON is YAML
    (folder / "task.yaml").write_text(json.dumps(task(order), indent=1), encoding="utf-8")


def task(order: Order) -> dict[str, Any]:
    given, said, cached = order.price
    model = {
        "provider": "openai_compatible",
        "model": order.model,
        "base_url": order.url,
        "max_tokens": order.max_tokens,
        "price": {"input": given, "output": said, "cached": cached},
        # what was paid for is kept by the meter, for this comparison alone
        "cache": False,
    }
    return {
        "id": f"live-{order.set}",
        "artifacts": {"include": ["prompt.md"]},
        "models": {
            "optimizer": model | {"max_tokens": WRITING * order.max_tokens},
            "target": model,
        },
        "runner": {"type": "model", "prompt": "prompt.md", "input": "input"},
        "scorer": {"type": "python", "function": "score:score"},
        "objective": {"primary_metric": "score", "direction": "maximize", "bounds": [0, 1]},
        "proposers": [{"kind": "reflect", "fields": ["input", "wanted"]}],
        "cases": {"file": "cases.jsonl"},
        "budget": {"max_rollouts": order.rollouts, "max_usd": order.usd},
        "workers": order.workers,
    }


if __name__ == "__main__":
    obey(act)
