"""Evaluations of draws, equal to what `summarize` of the core makes of the same rollouts."""

from collections.abc import (
    Callable,
    Collection,
    ItemsView,
    Iterable,
    Iterator,
    Mapping,
    ValuesView,
)
from dataclasses import dataclass, field
from functools import lru_cache
from operator import itemgetter
from typing import TypeVar

import numpy as np

from bench.gates.chance import Counters
from bench.gates.ground import FAILED, MISSING, Candidate, Ground, Outcomes
from kept.core.containers import make
from kept.core.objective import Objective
from kept.core.rollout import Pair, Purpose
from kept.core.score import Answers, Evaluation, Tally

OBJECTIVE = Objective("score", "maximize", bounds=(0.0, 1.0))


MESSAGES = {FAILED: "the candidate failed", MISSING: "no answer"}

NOTHING = Tally(0, 0.0, 0.0)
CASE: Callable[[Pair], str] = itemgetter(0)
REPEAT: Callable[[Pair], int] = itemgetter(1)

K = TypeVar("K")


def counters(pairs: Iterable[Pair], names: tuple[str, ...]) -> Counters:
    """Pair n is case n % cases, repeat n // cases; `names` are all cases of the run, in order."""
    place, size = places(names), len(names)
    return np.array([place[case] + size * repeat for case, repeat in pairs], np.uint64)


@lru_cache(maxsize=16)
def places(names: tuple[str, ...]) -> Mapping[str, int]:
    """Where each case stands among all of the run."""
    return {name: at for at, name in enumerate(names)}


@dataclass(slots=True)
class Drawn:
    """The rollouts of one candidate for one purpose."""

    losses: dict[Pair, float] = field(default_factory=dict[Pair, float])
    """Of every pair that has an answer."""
    failed: set[Pair] = field(default_factory=set[Pair])
    """Of these, the candidate's own failures."""
    lost: dict[Pair, int] = field(default_factory=dict[Pair, int])
    """How often each pair was tried that has no answer yet."""

    def open(self, pairs: tuple[Pair, ...]) -> tuple[Pair, ...]:
        """The pairs without an answer: new ones, and those that an outage left open."""
        known = self.losses
        return tuple([pair for pair in pairs if pair not in known]) if known else pairs

    def roll_out(
        self,
        ground: Ground,
        candidate: Candidate,
        purpose: Purpose,
        pairs: tuple[Pair, ...],
        at: int,
    ) -> None:
        """Have answers for open pairs; those tried before are drawn anew."""
        if not pairs:
            return
        if not self.lost:
            flat = counters(pairs, ground.names)
            self._note(pairs, ground.draw(candidate, purpose, flat, 0, at), 0)
            return
        tried = {pair: self.lost.get(pair, 0) for pair in pairs}
        for count in sorted(set(tried.values())):
            mine = tuple(pair for pair in pairs if tried[pair] == count)
            flat = counters(mine, ground.names)
            self._note(mine, ground.draw(candidate, purpose, flat, count, at), count)

    def _note(self, pairs: tuple[Pair, ...], ended: Outcomes, tried: int) -> None:
        rows = zip(pairs, ended.losses.tolist(), strict=True)
        if isinstance(ended.states, int):
            self.losses.update(rows)
            return
        for (pair, loss), state in zip(rows, ended.states.tolist(), strict=True):
            if state == MISSING:
                self.lost[pair] = tried + 1
                continue
            self.losses[pair] = loss
            self.lost.pop(pair, None)
            if state == FAILED:
                self.failed.add(pair)

    def answered(self, pairs: tuple[Pair, ...]) -> Answers:
        """The loss of every pair that has an answer, in the order of the pairs."""
        known = self.losses
        return Answers({pair: known[pair] for pair in pairs if pair in known})


class Sums(Mapping[K, Tally]):
    """Tallies of some answers, made when they are looked at: most gates look at few of them."""

    __slots__ = ("_answers", "_failed", "_key", "_made")

    def __init__(
        self, key: Callable[[Pair], K], answers: Mapping[Pair, float], failed: Collection[Pair]
    ) -> None:
        self._key, self._answers, self._failed = key, answers, failed
        self._made: dict[K, Tally] | None = None

    def _all(self) -> dict[K, Tally]:
        if self._made is None:
            made: dict[K, Tally] = {}
            key, failed = self._key, self._failed
            for pair, loss in self._answers.items():
                at = key(pair)
                n, total, squares, bad = made.get(at, NOTHING)
                bad += pair in failed
                made[at] = make(Tally, (n + 1, total + loss, squares + loss * loss, bad))
            self._made = made
        return self._made

    def __getitem__(self, key: K) -> Tally:
        return self._all()[key]

    def __iter__(self) -> Iterator[K]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def values(self) -> ValuesView[Tally]:
        return self._all().values()

    def items(self) -> ItemsView[K, Tally]:
        return self._all().items()


def evaluation(
    candidate: str,
    purpose: Purpose,
    pairs: tuple[Pair, ...],
    answers: Answers,
    failed: Collection[Pair] = (),
) -> Evaluation:
    """Sum up pairs, in the order in which they were asked for, by the answers to them alone."""
    means = answers.by_case.values()
    missing = len(pairs) - len(answers)
    bad = frozenset(failed).intersection(answers) if failed else ()
    scored = [-loss for pair, loss in answers.items() if not bad or pair not in bad]
    total = squares = 0.0
    for score in scored:
        # one by one as the engine adds: `sum` compensates rounding errors from Python 3.12 on
        total += score
        squares += score * score
    whole = Tally(len(scored), total, squares)
    return Evaluation(
        candidate,
        purpose,
        Sums(CASE, answers, bad),
        Sums(REPEAT, answers, bad),
        {OBJECTIVE.metric: whole} if scored else {},
        len(pairs),
        sum(means) / len(means) if means else None,
        missing=missing,
        failed=len(bad),
        first_failure=_first_failure(pairs, answers, bad) if missing or bad else "",
    )


def _first_failure(
    pairs: tuple[Pair, ...], answers: Mapping[Pair, float], failed: Collection[Pair]
) -> str:
    first = next(pair for pair in pairs if pair not in answers or pair in failed)
    return f"{first.case}: {MESSAGES[FAILED if first in answers else MISSING]}"
