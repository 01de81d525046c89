"""A share of all cases, by how many of those that were drawn have it: exact, however few."""

from math import exp, lgamma, log

STEPS = 60
"""Halvings of what is not known yet, after which it is known to the last digit."""


def chance_of(seen: int, cases: int, share: float) -> float:
    """Of drawing so many or fewer, where this share of all cases has it."""
    if seen >= cases or share <= 0:
        return 1.0
    if share >= 1:
        return 0.0
    yes, no, all_ = log(share), log(1 - share), lgamma(cases + 1)
    return min(
        1.0,
        sum(
            exp(all_ - lgamma(n + 1) - lgamma(cases - n + 1) + n * yes + (cases - n) * no)
            for n in range(seen + 1)
        ),
    )


def share_at_most(seen: int, cases: int, risk: float) -> float:
    """What the share is below, but for this risk, if so many of the cases have it.

    Clopper and Pearson's bound; where none has it, 1 − risk^(1/cases).
    """
    low, high = seen / cases, 1.0
    for _ in range(STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if chance_of(seen, cases, middle) > risk else (low, middle)
    return high
