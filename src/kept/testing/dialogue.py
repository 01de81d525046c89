"""A gate heard to its end: asked, answered from a table of outcomes, asked again.

The engine's own dialogue without the engine: no runner, no journal, only what rollouts would bring.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from kept.core.asked import Asked, note_asked
from kept.core.objective import Objective
from kept.core.ports import Gate
from kept.core.proposal import Ask
from kept.core.rollout import Pair, Purpose
from kept.core.score import Evaluation, Outcome, losses_of, summarize, ties_of
from kept.core.verdict import Side, Verdict, View

CHALLENGER = "challenger"
INCUMBENT = "incumbent"
ROUNDS = 1000
"""Rounds of Asks after which a gate counts as never coming to a verdict."""


class Draw(NamedTuple):
    """One rollout that a gate may ask for."""

    owner: str
    purpose: Purpose
    pair: Pair


def as_it_is(evaluation: Evaluation) -> Evaluation:
    """Change nothing."""
    return evaluation


@dataclass(frozen=True, slots=True, kw_only=True)
class Matter:
    """What a gate is to decide: the candidates, the cases, and what every rollout would bring."""

    outcome: Callable[[Draw], Outcome]
    changed: Mapping[Draw, Outcome] = field(default_factory=dict[Draw, Outcome])
    """Outcomes that are not as the function says."""
    best: str = INCUMBENT
    train: tuple[str, ...] = ("t0", "t1", "t2", "t3")
    holdout: tuple[str, ...] = ("h0", "h1", "h2", "h3")
    objective: Objective = field(default_factory=lambda: Objective(bounds=(0.0, 1.0)))
    shown: Callable[[Evaluation], Evaluation] = as_it_is
    """How tallies are put before the gate."""

    def view(self, asked: Mapping[tuple[str, Purpose], tuple[Pair, ...]]) -> View:
        """What a gate may look at when so much has been asked and answered."""
        known = {key: self._sum_up(*key, pairs) for key, pairs in asked.items()}

        def side(id_: str) -> Side:
            mine: list[Purpose] = [purpose for owner, purpose in asked if owner == id_]
            losses: dict[Purpose, Mapping[Pair, float]] = {
                p: self._losses(id_, p, asked[id_, p]) for p in mine
            }
            ties: dict[Purpose, tuple[Mapping[Pair, float], ...]] = {
                p: ties_of(self._outcomes(id_, p, asked[id_, p]), self.objective) for p in mine
            }
            return Side(id_, {p: known[id_, p] for p in mine}, losses, ties)

        return View(
            challenger=side(CHALLENGER),
            incumbent=side(INCUMBENT),
            best=side(self.best),
            train=self.train,
            holdout=self.holdout,
            objective=self.objective,
        )

    def _sum_up(self, owner: str, purpose: Purpose, pairs: tuple[Pair, ...]) -> Evaluation:
        outcomes = self._outcomes(owner, purpose, pairs)
        return self.shown(summarize(owner, purpose, outcomes, self.objective))

    def _losses(
        self, owner: str, purpose: Purpose, pairs: tuple[Pair, ...]
    ) -> Mapping[Pair, float]:
        return losses_of(self._outcomes(owner, purpose, pairs), self.objective)

    def _outcomes(
        self, owner: str, purpose: Purpose, pairs: tuple[Pair, ...]
    ) -> list[tuple[Pair, Outcome]]:
        draws = [Draw(owner, purpose, pair) for pair in pairs]
        return [(draw.pair, self.changed.get(draw) or self.outcome(draw)) for draw in draws]


@dataclass(frozen=True, slots=True)
class Heard:
    """A gate's verdict and how it came to it."""

    verdict: Verdict
    asks: tuple[Ask, ...]
    views: tuple[View, ...]

    @property
    def draws(self) -> list[Draw]:
        """Every rollout it asked for."""
        return [Draw(ask.candidate, ask.purpose, pair) for ask in self.asks for pair in ask.pairs]


def hear(gate: Gate, matter: Matter) -> Heard:
    """Answer a gate until it has a verdict; an `AssertionError` when it never comes to one."""
    asked: Asked = {}
    asks: list[Ask] = []
    views: list[View] = []
    for _ in range(ROUNDS):
        views.append(matter.view(asked))
        answer = gate.decide(views[-1])
        if isinstance(answer, Verdict):
            return Heard(answer, tuple(asks), tuple(views))
        asks += answer
        assert note_asked(asked, answer), f"`{gate.name}` asked for nothing new: {answer}"
    raise AssertionError(f"`{gate.name}` asked {ROUNDS} times and came to no verdict")
