"""What a comparison on these cases could show, from the noise of the seed alone.

How much the effect of a challenger differs from case to case, nobody can know before it has run. So
there are two forecasts: of one that helps all cases alike, and of one whose scores have nothing to
do with the seed's, case by case. Its cases then differ from the seed's as much as two draws of
cases do, and by how much cases differ is taken from above.
"""

from typing import NamedTuple

from kept.gates.compare import Compare, looks
from kept.gates.detect import Spread, detectable


class Forecast(NamedTuple):
    """What so many passes could show."""

    passes: int
    rollouts: int
    alike: float
    """The gain that is found four times out of five, where it is the same on every case."""
    worst: float
    """The same where a challenger's scores have nothing to do with the seed's."""


def forecasts(gate: Compare, cases: int, noise: float, widest: float) -> list[Forecast]:
    """One for each number of passes after which it looks; one alone where there is no noise."""
    whole = [size // cases for size in looks(cases, gate.most) if size >= cases]
    found: list[Forecast] = []
    for passes in whole if noise else whole[:1]:
        level = gate.final(cases, passes)
        alike, worst = (
            detectable(Spread(2 * noise, effect), cases, passes, level)
            for effect in (0.0, 2 * widest)
        )
        found.append(Forecast(passes, (1 + gate.challengers) * passes * cases, alike, worst))
    return found
