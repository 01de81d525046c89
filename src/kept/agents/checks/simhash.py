"""How alike two texts are, by a fingerprint of 64 bits.

Two texts share about half of the bits by chance, and nearly all when one is the other with a few
words changed. Pure, and the same on every machine: no hash of Python's own is in it.
"""

import hashlib
from collections.abc import Iterator, Sequence

from kept.core.text import grams, words_of

BITS = 64


def fingerprint(text: str) -> int:
    """The fingerprint of a text: of its words two by two, so that their order counts."""
    words = words_of(text)
    sums = [0] * BITS
    for feature in _features(words):
        bits = int.from_bytes(hashlib.blake2b(feature.encode(), digest_size=8).digest(), "big")
        for n in range(BITS):
            sums[n] += 1 if bits >> n & 1 else -1
    return sum(1 << n for n, total in enumerate(sums) if total > 0)


def _features(words: Sequence[str]) -> Iterator[str]:
    if len(words) < 2:
        yield from words
    yield from map(" ".join, grams(words, 2))


def likeness(one: int, two: int) -> float:
    """The share of bits that two fingerprints have in common."""
    return 1 - (one ^ two).bit_count() / BITS


def alike(one: str, two: str) -> float:
    """The same of two texts; equal texts are 1, also where they have no words."""
    return 1.0 if one == two else likeness(fingerprint(one), fingerprint(two))
