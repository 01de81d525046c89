"""A seeded sample of many alike in every run; all of them in `./scripts/test nightly`."""

import random
from collections.abc import Iterable
from typing import TypeVar

import pytest

Item = TypeVar("Item")

some_or_all = pytest.mark.parametrize(
    "everything",
    [pytest.param(False, id="some"), pytest.param(True, id="all", marks=pytest.mark.nightly)],
)
"""For a test that takes `everything: bool`: once with a sample, and nightly with all there are."""


def sample(items: Iterable[Item], size: int, everything: bool = False) -> list[Item]:
    """Items in their order: all, or so many of them, always the same ones, both ends included."""
    found = list(items)
    if everything or len(found) <= size:
        return found
    inside = random.Random(len(found)).sample(range(1, len(found) - 1), size - 2)
    return [found[number] for number in (0, *sorted(inside), len(found) - 1)]
