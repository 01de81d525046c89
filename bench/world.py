"""The task that every arm works on: texts that grow by a line a step, and an evaluator that counts.

A `+` line is worth a little and a `-` line costs more, so each proposal is known to win or lose
against whatever it is added to. Imports nothing, because peers run it in environments of their own.
"""

SEED = "seed"

TRAIN = 64
"""Cases that proposers may see. Kept's proposer looks at none; gepa draws its minibatches there."""

EVALUATOR_SECONDS = 0.05
"""What an evaluation takes where it takes any time."""


def score(text: str) -> float:
    return 0.5 + text.count("+") / 1e6 - text.count("-") / 1e3


def line(number: int, one_in: int) -> str:
    """What the nth proposal adds; one in so many wins, none when that is 0."""
    wins = one_in > 0 and number % one_in == 0
    return f"\n{'+' if wins else '-'} {number}"
