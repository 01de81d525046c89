"""How well the best prompt could be told at all, by the cases that a split shows.

Every draw of the bank is looked at, so that there is no noise left, and no rule that chooses by
these cases could do better. That is the bound on choosing; the proof is another question.
"""

from typing import NamedTuple

from bench.real.bank import Bank
from bench.real.replay import RATIO
from kept.core.case import Case, split_cases


class Leaders(NamedTuple):
    """In how many splits the best prompt leads."""

    splits: int
    rows: tuple[tuple[str, int, int], ...]
    """Which cases, how many of them, and splits in which it leads there."""


def leaders(bank: Bank, splits: int) -> Leaders:
    """Count them, for the cases that a run learns from, decides by, and both."""
    best = max(bank.prompts, key=bank.mean)
    cases = [Case(name) for name in bank.cases]
    hits: dict[str, int] = {}
    sizes: dict[str, int] = {}
    for number in range(splits):
        found = split_cases(cases, RATIO, number)
        shown = {
            "train": found.train,
            "deciding": found.holdout,
            "train and deciding": (*found.train, *found.holdout),
        }
        for name, part in shown.items():
            sizes[name] = len(part)
            hits[name] = hits.get(name, 0) + (_leader(bank, part) == best)
    return Leaders(splits, tuple((name, sizes[name], hits[name]) for name in hits))


def _leader(bank: Bank, part: tuple[Case, ...]) -> str:
    return max(
        bank.prompts, key=lambda prompt: sum(sum(bank.right[prompt, case.id]) for case in part)
    )
