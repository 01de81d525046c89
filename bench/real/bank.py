"""A bank of rollouts of the embedded model, recorded once.

One line for each prompt and case of the demo task, with the labels of all its draws; the first line
says what they were made with. A line that is there is not made again.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from kept.ui.demo import REVIEWS

FILE = Path(__file__).parent.parent / "data" / "reviews.jsonl"
DRAWS = 12
CASES = 150
TEMPERATURE = 0.7
LETTERS = {"positive": "p", "negative": "n"}
"""How a label is written in the bank; `?` is an answer that is none of them."""


@dataclass(frozen=True, slots=True)
class Bank:
    """What each prompt made of each case, draw by draw: 1 where it was right."""

    prompts: tuple[str, ...]
    cases: tuple[str, ...]
    right: Mapping[tuple[str, str], tuple[int, ...]]

    def mean(self, prompt: str) -> float:
        """The share of right answers of a prompt."""
        rows = [self.right[prompt, case] for case in self.cases]
        return sum(map(sum, rows)) / sum(map(len, rows))


def prompts() -> dict[str, str]:
    """The seed of the demo and its variants, by name."""
    found = {"seed": REVIEWS / "prompt.md"}
    paths = sorted(REVIEWS.glob("variants/*/prompt.md"))
    # the number is only the order in which the demo tries them
    found |= {path.parent.name.partition("-")[2]: path for path in paths}
    return {name: path.read_text(encoding="utf-8").strip() for name, path in found.items()}


def cases() -> list[dict[str, str]]:
    """The cases of the demo that are in the bank."""
    text = (REVIEWS / "cases.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()][:CASES]


def lines(file: Path = FILE) -> Iterator[dict[str, str]]:
    """What was recorded; a last line that was cut is left out."""
    if file.exists():
        for line in file.read_text(encoding="utf-8").splitlines(keepends=True):
            if line.endswith("\n") and '"said"' in line:
                yield json.loads(line)


def read(file: Path = FILE) -> Bank:
    """The bank, as far as whole prompts were recorded."""
    labels = {case["id"]: LETTERS[case["label"]] for case in cases()}
    right = {
        (line["prompt"], line["case"]): tuple(int(c == labels[line["case"]]) for c in line["said"])
        for line in lines(file)
    }
    whole = [name for name in prompts() if all((name, case) in right for case in labels)]
    return Bank(tuple(whole), tuple(labels), right)
