"""The split of the benchmark: each repository is shared out by itself."""

from collections.abc import Sequence
from random import Random

from kept.core.case import Case, Cases
from kept.evaluators.environments.fields import values


def split_by_repo(cases: Sequence[Case], ratio: Sequence[int], seed: int) -> Cases:
    """Share the cases of each repository among train, selection and test by ratio.

    A repository with three cases or more has one in each part, as far as the ratio has that part.
    Of two, one is for training; a single one is for the test.
    """
    chance = Random(seed)
    groups: dict[str, list[Case]] = {}
    for case in cases:
        groups.setdefault(str(values(case)["repo"]), []).append(case)
    parts: tuple[list[Case], list[Case], list[Case]] = ([], [], [])
    for _, group in sorted(groups.items()):
        group = sorted(group, key=lambda case: case.id)
        chance.shuffle(group)
        train, selection = _counts(len(group), ratio)
        parts[0].extend(group[:train])
        parts[1].extend(group[train : train + selection])
        parts[2].extend(group[train + selection :])
    for part in parts:
        Random(seed + 1).shuffle(part)
    return Cases(*(tuple(part) for part in parts))


def _counts(size: int, ratio: Sequence[int]) -> tuple[int, int]:
    """Cases of a repository for training and for selection."""
    if size == 1:
        return (0, 0) if ratio[2] else (1, 0)
    if size == 2:
        return (1, 0) if ratio[2] else (1, 1)
    total = sum(ratio)
    train, selection = (round(size * part / total) for part in ratio[:2])
    train, selection = max(train, 1), max(selection, 1)
    if not ratio[2]:
        return size - selection, selection
    while train + selection >= size:
        train, selection = (train - 1, selection) if train > selection else (train, selection - 1)
    return train, selection
