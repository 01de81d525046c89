"""Public data in small, in the formats it is published in, and a model that can be prompted."""

import json
import re
from pathlib import Path
from random import Random
from typing import Any

from kept.core.llm import ModelReply
from kept.testing.server import Seen

FORM = "Think in steps."
"""What a prompt must say for the model to be right."""

IFEVAL: list[dict[str, Any]] = [
    {
        "key": 1,
        "prompt": "Write a poem. Use no commas.",
        "instruction_id_list": ["punctuation:no_comma"],
        "kwargs": [{}],
    },
    {
        "key": 2,
        "prompt": "Answer in Kannada.",
        "instruction_id_list": ["language:response_language"],
        "kwargs": [{"language": "kn"}],
    },
    {
        "key": 3,
        "prompt": "Name the capital. Wrap it in quotes, with a title <<so>>.",
        "instruction_id_list": ["startend:quotation", "detectable_format:title"],
        "kwargs": [{}, {}],
    },
]


def write_data(folder: Path, rows: int = 40) -> Path:
    """All three sets."""
    for name in ("gsm8k", "bbh", "ifeval"):
        (folder / name).mkdir(parents=True)
    for part, start in (("train", 0), ("test", 5000)):
        lines = [
            json.dumps(
                {
                    "question": f"Ann has {n} bags of {7} eggs. How many eggs?",
                    "answer": f"{n} * 7 = <<{n}*7={n * 7}>>{n * 7}\n#### {n * 7:,}",
                }
            )
            for n in range(start, start + rows)
        ]
        (folder / "gsm8k" / f"{part}.jsonl").write_text("\n".join(lines) + "\n")
    examples = [{"input": f"not ( {n % 2 == 0} ) is", "target": str(n % 2 == 1)} for n in range(9)]
    whole = {"canary": "a line that asks not to be trained on", "examples": examples}
    (folder / "bbh" / "boolean_expressions.json").write_text(json.dumps(whole))
    lines = [json.dumps(row) for row in IFEVAL]
    (folder / "ifeval" / "input_data.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def answer(seen: Seen) -> ModelReply | str:
    """Solves bags of eggs, mostly where it is told to think; writes prompts for whoever asks.

    All follows from what it is asked, so that a run that is repeated is the same run.
    """
    asked = seen.lines[-1].text
    found = re.fullmatch(r"Ann has (\d+) bags of 7 eggs\. How many eggs\?", asked)
    if found is None:
        return _written(seen)
    chance = Random(json.dumps(seen.body.get("messages")) + str(seen.body.get("seed")))
    right = chance.random() < (0.95 if FORM in seen.lines[0].text else 0.3)
    return f"Let us see.\n#### {int(found[1]) * 7 if right else 1}"


def _written(seen: Seen) -> str:
    mark = Random(seen.text).randrange(10**6)
    if "response_format" in seen.body:
        edit = {"op": "append", "path": "prompt.md", "target": "", "text": f"{FORM} ({mark})\n"}
        return json.dumps({"diagnosis": [], "why": "it guesses", "cases": [], "edits": [edit]})
    return f"```\nSolve it. {FORM} End with #### and the number. ({mark})\n```"
