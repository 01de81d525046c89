"""How alike two texts are, by a fingerprint of 64 bits.

Two texts share about half of the bits by chance, and nearly all when one is the other with a few
words changed. Pure, and the same on every machine: no hash of Python's own is in it.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence

from kept.core.text import grams, words_of

BITS = 64

_LANE_BITS = 32
"""Of one counter; several counters stand side by side in one integer."""

_LANES = tuple(sum((byte >> n & 1) << n * _LANE_BITS for n in range(8)) for byte in range(256))
"""The bits of a byte, each in a counter of its own: eight of them are added up at once."""


def fingerprint(text: str) -> int:
    """The fingerprint of a text: of its words two by two, so that their order counts."""
    features = Counter(_features(words_of(text)))
    ones = [0] * (BITS // 8)
    for feature, times in features.items():
        digest = hashlib.blake2b(feature.encode(), digest_size=BITS // 8).digest()
        for place, byte in enumerate(digest):
            ones[place] += _LANES[byte] * times
    half, lane = features.total() // 2, (1 << _LANE_BITS) - 1
    return sum(1 << n for n in range(BITS) if ones[-1 - n // 8] >> n % 8 * _LANE_BITS & lane > half)


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
