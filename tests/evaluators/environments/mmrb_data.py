"""MMRB's format with cards drawn here: two files of one shape, each with pictures of its own."""

import json
from pathlib import Path
from typing import Any

from tests.evaluators.environments.drawing import draw, page

FILES = ("cards/retrieval_human.json", "count/counting_human.json")
NUMBERS = ("two", "three", "four", "five")


def card(n: int, k: int) -> tuple[str, str]:
    """The words on picture k of row n."""
    return (f"Card {n}.{k}", f"{NUMBERS[(n + k) % 4]} stars")


def shown(n: int) -> list[bytes]:
    """The pictures of row n as a student sees them: 2, 3 and 1 in the text, 4 behind it."""
    order = (2, 3, 1, 4) if n % 2 == 0 else (1, 2)
    return [page(*card(n, k)) for k in order]


def row(n: int) -> dict[str, Any]:
    """One row: a choice by turns with a short answer."""
    many = 4 if n % 2 == 0 else 2
    head = {
        "source": "ours",
        "index": n // 2,
        "image_paths": [f"./images/{n // 2}_{k}.png" for k in range(many)],
        "reasoning_steps": [
            [{"reasoning step": 1, "reasoning type": "look", "rationale": "Look."}]
        ],
        "annotation_time": 12.3,
    }
    if n % 2 == 0:
        asked = f"Row {n}: which of {{image#2}} and {{Image#3}} goes with {{image#1}}?"
        asked += " (A) second (B) third"
        tail: dict[str, Any] = {
            "subtask": "Image Retrieval",
            "options": ["(A) second", "(B) third"],
        }
        letter = "AB"[n // 2 % 2]
        return {
            **head,
            **tail,
            "question": asked,
            "answer": letter,
            "question_type": "multi-choice",
        }
    asked = f"Row {n}: how many more stars has {{image#1}} than {{image#2}}?"
    tail = {"subtask": "Counting", "options": [], "question_type": "free-form"}
    return {**head, **tail, "question": asked, "answer": f"{n} stars"}


def right(n: int) -> str:
    """The reply that solves row n."""
    said = f"({'AB'[n // 2 % 2]})" if n % 2 == 0 else f"{n} Stars."
    return f"<answer>{said}</answer>"


def wrong(n: int) -> str:
    """A reply that fails row n."""
    return f"<answer>{'BA'[n // 2 % 2] if n % 2 == 0 else 'no stars'}</answer>"


def write_mmrb(folder: Path, size: int = 12) -> Path:
    """The folders as the publisher's archive has them, pictures beside each file."""
    for k, name in enumerate(FILES):
        rows = [row(n) for n in range(k, size, 2)]
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(rows, indent=1))
        for n in range(k, size, 2):
            for at, image in enumerate(row(n)["image_paths"]):
                draw(path.parent / image, *card(n, at + 1))
    return folder
