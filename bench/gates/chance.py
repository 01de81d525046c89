"""Uniform numbers by name, not in turn: the draw of a pair does not depend on those before it.

SplitMix64: a counter is multiplied out and mixed. The streams of two keys do not meet in practice.
"""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Counters = NDArray[np.uint64]
Places = NDArray[np.intp]

_MASK = (1 << 64) - 1
_GOLDEN, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_GOLDEN64, _FIRST64, _SECOND64 = (np.uint64(n) for n in (_GOLDEN, _FIRST, _SECOND))
_SHIFTS = tuple(np.uint64(n) for n in (30, 27, 31, 11))


def mixed(key: int, *more: int) -> int:
    """One key out of several."""
    for number in more:
        key = (key + (number + 1) * _GOLDEN) & _MASK
        key = ((key ^ (key >> 30)) * _FIRST) & _MASK
        key = ((key ^ (key >> 27)) * _SECOND) & _MASK
        key ^= key >> 31
    return key


def uniforms(key: int, counters: Counters) -> Floats:
    """A number in 0 … 1 for every counter."""
    a, b, c, d = _SHIFTS
    z = counters * _GOLDEN64
    z += np.uint64(key)
    z ^= z >> a
    z *= _FIRST64
    z ^= z >> b
    z *= _SECOND64
    z ^= z >> c
    return (z >> d).astype(np.float64) * 2.0**-53
