"""MathVerse's format with diagrams drawn here: three versions of each problem."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.evaluators.environments.drawing import draw, page

VERSIONS = ("Text Dominant", "Text Lite", "Vision Only")
LETTERS = "ABCD"


def area(n: int) -> int:
    """The area of rectangle n, which is n + 3 by n + 5."""
    return (n + 3) * (n + 5)


def diagram(n: int) -> tuple[str, str]:
    """The words in diagram n."""
    return (f"Rectangle {n}", f"{n + 3} by {n + 5}")


def drawn(n: int) -> bytes:
    """Diagram n."""
    return page(*diagram(n))


def row(n: int, version: str = "Text Lite") -> dict[str, Any]:
    """One version of problem n: a choice by turns with a free form."""
    sides = f" with sides {n + 3} and {n + 5}" if version == "Text Dominant" else ""
    asked = f"What is the area of rectangle {n}?{sides}"
    choice = n % 2 == 0
    if choice:
        values = [area(n) + k - n % 4 for k in range(4)]
        shown = zip(LETTERS, values, strict=True)
        asked += "\nChoices:\n" + "\n".join(f"{letter}:{value}" for letter, value in shown)
    return {
        "sample_index": str(5 * n + VERSIONS.index(version)),
        "problem_index": str(n),
        "problem_version": version,
        "question": "" if version == "Vision Only" else asked,
        "image": f"images_version_1-4/image_{n}.png",
        "answer": LETTERS[n % 4] if choice else f"${area(n)}$",
        "question_type": "multi-choice" if choice else "free-form",
        "metadata": {
            "split": "testmini",
            "source": "ours",
            "subject": "Plane Geometry",
            "subfield": "Area",
        },
        "query_wo": f"Please directly answer: {asked}",
        "query_cot": f"Please first reason: {asked}",
        "question_for_eval": asked,
    }


def right(n: int) -> str:
    """The reply that solves problem n; of every fourth only a judge finds it right."""
    if n % 2 == 0:
        return f"So <answer>{LETTERS[n % 4]}</answer>"
    said = f"{area(n)} square units" if n % 4 == 3 else f"\\boxed{{{area(n)}}}"
    return f"So <answer>{said}</answer>"


def wrong(n: int) -> str:
    """A reply that fails problem n."""
    return f"<answer>{LETTERS[n % 4 - 1]}</answer>" if n % 2 == 0 else "<answer>1</answer>"


def verdict(prompt: str) -> str:
    """The words of a judge: both have the same numbers."""
    expected, answer = (
        re.findall(r"\d+", prompt.partition(f"<{tag}>")[2].partition(f"</{tag}>")[0])
        for tag in ("expected", "answer")
    )
    return str(expected == answer)


def write_diagrams(root: Path, size: int) -> Path:
    """The pictures and `testmini.json`, as the publisher has them."""
    for n in range(size):
        draw(root / "images" / f"images_version_1-4/image_{n}.png", *diagram(n))
    rows = [row(n, version) for n in range(size) for version in VERSIONS]
    (root / "testmini.json").write_text(json.dumps(rows, indent=1))
    return root


def write_mathverse(folder: Path, sizes: Sequence[int] = (6, 4, 2)) -> Path:
    """Diagrams, and a split with all versions, where the config of Kept looks for them."""
    write_diagrams(folder / "data" / "MathVerse", sum(sizes))
    n = 0
    for name, size in zip(("train", "val", "test"), sizes, strict=True):
        place = folder / "data" / "mathverse_split" / name
        place.mkdir(parents=True, exist_ok=True)
        rows = [row(n + k, version) for k in range(size) for version in VERSIONS]
        (place / f"{name}.json").write_text(json.dumps(rows, indent=1))
        n += size
    return folder / "data" / "mathverse_split"
