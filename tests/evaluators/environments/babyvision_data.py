"""BabyVision's format with pictures drawn here: a choice by turns with a short text."""

import json
import re
from pathlib import Path
from typing import Any

from tests.evaluators.environments.drawing import draw, page

COLOURS = ("red", "green", "blue")
MORE = 7
"""Rows with a blank count up from here."""


def scene(n: int) -> tuple[str, str]:
    """The words in picture n."""
    return (f"Scene {n}", f"A {COLOURS[n % 3]} ball" if n % 2 == 0 else f"{n + MORE} balls")


def drawn(n: int) -> bytes:
    """Picture n."""
    return page(*scene(n))


def row(n: int) -> dict[str, Any]:
    """One row of `meta_data.jsonl`."""
    head = {
        "taskId": 100 + n,
        "type": "Visual Tracking" if n % 2 else "Fine-grained Discrimination",
        "subtype": "Count" if n % 2 else "Find the same",
        "image": f"{100 + n}.png",
        "coT": "Look at it.",
    }
    if n % 2:
        asked = f"How many balls are in scene {n}? The answer format is (balls,scene)."
        tail: dict[str, Any] = {"ansType": "blank", "options": [], "choiceAns": None}
        return {**head, "question": asked, **tail, "blankAns": f"({n + MORE},{n})"}
    tail = {"ansType": "choice", "options": [*COLOURS], "choiceAns": n % 3, "blankAns": None}
    return {**head, "question": f"Which colour has the ball in scene {n}?", **tail}


def right(n: int) -> str:
    """The reply that solves row n; of every fourth only a judge finds it right."""
    if n % 2 == 0:
        return f"\\boxed{{{'ABC'[n % 3]}}}"
    said = f"{n + MORE} balls in scene {n}" if n % 4 == 3 else f"({n + MORE}, {n})"
    return f"So \\boxed{{{said}}}"


def wrong(n: int) -> str:
    """A reply that fails row n."""
    return f"\\boxed{{{'BCA'[n % 3]}}}" if n % 2 == 0 else "\\boxed{none}"


def verdict(prompt: str) -> str:
    """What a judge says: the numbers that are expected stand in the answer."""
    expected, answer = (
        re.findall(r"\d+", prompt.partition(f"<{tag}>")[2].partition(f"</{tag}>")[0])
        for tag in ("expected", "answer")
    )
    return str(expected == answer)


def write_rows(folder: Path, rows: list[dict[str, Any]]) -> Path:
    """Rows without their pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(one) + "\n" for one in rows)
    (folder / "meta_data.jsonl").write_text(text)
    return folder


def write_babyvision(folder: Path, size: int = 12) -> Path:
    """A folder as the publisher's script leaves it."""
    for n in range(size):
        draw(folder / "images" / f"{100 + n}.png", *scene(n))
    return write_rows(folder, [row(n) for n in range(size)])
