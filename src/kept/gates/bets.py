"""Evidence for a gain, as money won by betting on it.

Each paired gain g between −1 and 1 multiplies the stake by 1 + λg. If a challenger is not better in
the mean over the deciding cases, then a full pass over them does not grow the stake on average: the
product of the means by case is at most the mean's power (the inequality of the two means). So the
stake exceeds 1/α at the end of any pass with a chance of at most α, however often one looks,
however the gains are distributed and however they differ from case to case. Several λ share it.
Premises: draws of different cases and passes are independent, and a pass is complete; of what
outages left out, at most one pair in ten, nothing is known.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from math import exp, log, log1p

STAKES = (0.05, 0.1, 0.2, 0.4, 0.7)
"""The bets; which of them pays best depends on the size of the gain, which nobody knows."""


MOST_ODDS = 1e6
"""Beyond this, nobody needs to know them more exactly."""


def evidence(gains: Iterable[float], stakes: Sequence[float] = STAKES) -> float:
    """The logarithm of what a stake of 1 has become."""
    counts = Counter(gains).items()
    logs = [sum(n * log1p(stake * gain) for gain, n in counts) for stake in stakes]
    top = max(logs)
    return top + log(sum(exp(one - top) for one in logs) / len(logs))


def odds(chance: float) -> str:
    """Odds to one, as a person reads them."""
    if chance > MOST_ODDS:
        return f"over {MOST_ODDS:,.0f}"
    return f"{chance:,.0f}" if chance >= 10 else f"{chance:.2g}"
