"""Gates on small tables: one row of outcomes for each side, one column for each case."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from kept.core.objective import Objective
from kept.core.ports import Gate
from kept.core.rollout import Failure, Purpose
from kept.core.score import Outcome
from kept.core.verdict import Verdict
from kept.testing.fakes import CHALLENGER, INCUMBENT, Draw, Heard, Matter, hear

Cell = float | Mapping[str, float] | None | Failure
"""A score, several measures, nothing because of an outage, or a failure."""

CRASH = Failure("crash", "candidate", "it crashed")
OUTAGE = Failure("server", "infrastructure", "503")
BEST = "best"

Rows = Mapping[str, Sequence[Cell]]


@dataclass(frozen=True)
class Table:
    """What rollouts bring: by side, then by case, with one cell for each repeat or one for all."""

    holdout: Mapping[str, Sequence[Cell | Sequence[Cell]]] = field(
        default_factory=dict[str, list[Cell]]
    )
    train: Mapping[str, Sequence[Cell | Sequence[Cell]]] = field(
        default_factory=dict[str, list[Cell]]
    )
    objective: Objective = field(default_factory=Objective)

    def matter(self) -> Matter:
        sides = {**self.holdout, **self.train}
        train = tuple(f"t{n}" for n in range(max(map(len, self.train.values()), default=0)))
        holdout = tuple(f"h{n}" for n in range(max(map(len, self.holdout.values()), default=0)))
        return Matter(
            outcome=self.outcome,
            best=BEST if BEST in sides else INCUMBENT,
            train=train,
            holdout=holdout,
            objective=self.objective,
        )

    def outcome(self, draw: Draw) -> Outcome:
        case, repeat = draw.pair
        rows = self.train if case.startswith("t") else self.holdout
        cell = rows[draw.owner][int(case[1:])]
        if isinstance(cell, Sequence):
            cell = cell[repeat]
        if cell is None:
            return Outcome(failure=OUTAGE)
        if isinstance(cell, Failure):
            return Outcome(failure=cell)
        return Outcome(cell if isinstance(cell, Mapping) else {self.objective.metric: cell})


def judged(
    gate: Gate,
    incumbent: Sequence[Cell],
    challenger: Sequence[Cell],
    objective: Objective | None = None,
    best: Sequence[Cell] | None = None,
) -> Verdict:
    """The verdict on one pass over the deciding cases."""
    rows = {INCUMBENT: incumbent, CHALLENGER: challenger}
    if best is not None:
        rows[BEST] = best
    table = Table(rows)
    if objective is not None:
        table = replace(table, objective=objective)
    return hear(gate, table.matter()).verdict


def purposes(heard: Heard) -> list[tuple[str, Purpose]]:
    """Who was asked about, and what for, in order."""
    return [(ask.candidate, ask.purpose) for ask in heard.asks]
