"""What is trained on: cases of SearchQA's shape, and how often a student is right."""

import hashlib
import json
from pathlib import Path

SECONDS = 0.05
"""Of a reply."""
AT_ONCE, BATCH = 24, 40
SPLITS = ("train", "val", "test")


def share(*what: object) -> float:
    digest = hashlib.sha256(repr(what).encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**48


def is_right(n: int, seed: object, skill: str) -> bool:
    """More often with more rules in the skill."""
    return share(n, seed) < 0.2 + 0.2 * skill.count("- Rule")


def write_cases(folder: Path, sizes: tuple[int, int, int]) -> None:
    """A folder of splits."""
    start = 0
    for part, size in zip(SPLITS, sizes, strict=True):
        rows = [_row(n) for n in range(start, start + size)]
        start += size
        (folder / part).mkdir(parents=True)
        (folder / part / "items.json").write_text(json.dumps(rows))


def _row(n: int) -> dict[str, object]:
    told = {"question": f"What is number {n}?", "answers": [f"word{n}"]}
    return {"id": f"q{n}", "context": f"[DOC] Number {n} is called word{n}.", **told}


def ideal(calls: int, seconds: float) -> float:
    """Share of the calls that so many in flight without a pause could make in that time."""
    return calls * SECONDS / AT_ONCE / seconds
