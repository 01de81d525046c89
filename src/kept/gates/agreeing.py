"""How many draws must agree before one may say that there is no noise.

That no draw has differed says little where there are few: what is a wreck in one run of eight is
itself in five runs out of five every other time.
"""

from math import ceil, log, log1p

from kept.core.alpha import Ledger

LATE = Ledger(tests=99)
"""A step that has as little to risk as any that is reckoned with beforehand."""


def agreeing(risk: float, odd: float) -> int:
    """Draws of which all are alike with no more than this risk, if a share of them is otherwise."""
    return ceil(log(risk) / log1p(-odd))
